"""What a model call cost, as the ledger keeps it."""

from everturn.model.commits import UsageEvent
from everturn.ports.language_model import ModelUsage


def build_usage_event(model: str, role: str, usage: ModelUsage) -> UsageEvent:
    """`role` says what the call was for."""
    return UsageEvent(
        model=model,
        role=role,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_usd=usage.cost_usd,
        estimated=usage.estimated,
        cost_known=usage.cost_known,
    )
