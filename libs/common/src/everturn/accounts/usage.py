"""Usage by person, as sums that outlive the conversations."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import date


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


LoadUsage = Callable[[str | None, date, date, int], Awaitable[tuple[UsageTotal, ...]]]
"""For operators, because services have no access: of one tenant, or of all for None, the totals of the days from the
first date to before the second one, at most so many rows."""
