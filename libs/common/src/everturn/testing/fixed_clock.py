"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta

BEGINNING = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class FixedClock:
    """Implements Clock. Both of its times move together."""

    def __init__(self, now: datetime = BEGINNING) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds
