"""What people used, as sums; they outlive the conversations."""

from dataclasses import dataclass
from datetime import date
from typing import Protocol


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """The calls of one person to one model in one role on one day of UTC.

    `unpriced_calls` have no known price and add 0 to `cost_usd`; the tokens of `estimated_calls` are an estimate.
    """

    tenant: str
    project: str
    user_id: str
    day: date
    model: str
    role: str
    calls: int
    unpriced_calls: int
    estimated_calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float


# What people used, for operators.


class UsageReport(Protocol):
    """Where the totals are, over all tenants. No service may."""

    async def load(self, *, tenant: str | None, start: date, end: date, limit: int) -> tuple[UsageTotal, ...]:
        """Totals of the days from `start` to before `end`, the first `limit` of them; of one tenant or of all."""
        ...
