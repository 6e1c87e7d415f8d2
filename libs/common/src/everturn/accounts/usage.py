"""Usage by person, as sums that outlive the conversations."""

from dataclasses import dataclass
from datetime import date
from typing import Protocol


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """The calls of one person to one model in one role on one UTC day.

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


# Usage reports for operators.


class UsageReport(Protocol):
    """Reads the totals of all tenants. Services have no access."""

    async def load(self, *, tenant: str | None, start: date, end: date, limit: int) -> tuple[UsageTotal, ...]:
        """Totals of the days from `start` to before `end`, at most `limit` rows; of one tenant or of all."""
        ...
