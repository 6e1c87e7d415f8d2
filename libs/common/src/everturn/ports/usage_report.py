"""What people used, for operators."""

from datetime import date
from typing import Protocol

from everturn.model.usage_totals import UsageTotal


class UsageReport(Protocol):
    """Where the totals are, over all tenants. No service may."""

    async def load(self, *, tenant: str | None, start: date, end: date, limit: int) -> tuple[UsageTotal, ...]:
        """Totals of the days from `start` to before `end`, the first `limit` of them; of one tenant or of all."""
        ...
