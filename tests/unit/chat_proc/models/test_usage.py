"""Usage goes into the ledger as the provider counted it."""

from chat_proc.models.calls import build_usage_event
from everturn.models.port import ModelUsage
from everturn.turns.model import UsageEvent


def test_every_count_is_kept_with_the_model_and_the_role() -> None:
    usage = ModelUsage(100, 20, 60, 5, 0.25, estimated=True)

    assert build_usage_event("m", "summary", usage) == UsageEvent("m", "summary", 100, 20, 60, 5, 0.25, True)
