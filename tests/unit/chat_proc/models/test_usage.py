"""Usage goes into the ledger as the provider counted it, unless that can't be true."""

from structlog.testing import capture_logs

from chat_proc.models.calls import build_usage_event
from chat_proc.models.usage import UsageChecker
from everturn.models.port import ModelRequest, ModelTraits, ModelUsage, PromptMessage, TextPart
from everturn.turns.model import UsageEvent


def test_every_count_is_kept_with_the_model_and_the_role() -> None:
    usage = ModelUsage(100, 20, 60, 5, 0.25, estimated=True)

    assert build_usage_event("m", "summary", usage) == UsageEvent("m", "summary", 100, 20, 60, 5, 0.25, True)


def test_only_counts_that_cant_be_true_are_estimated_and_logged_once() -> None:
    checker = UsageChecker(ModelTraits("m", 1_000, images=False, documents=False))
    short, long = (ModelRequest((PromptMessage("user", (TextPart("x" * size),)),), 100) for size in (35, 35_000))
    counts = ModelUsage(30_000, 10)

    with capture_logs() as logs:
        assert checker.complete(ModelUsage(4_000, 10), short, 10).input_tokens == 4_000
        assert checker.complete(counts, long, 10).input_tokens == 30_000
        assert checker.complete(counts, short, 10).input_tokens == 10
        assert checker.complete(ModelUsage(10, 5_000), short, 10).output_tokens == 3
        assert checker.complete(None, short, 10).estimated

    assert len(logs) == 1
