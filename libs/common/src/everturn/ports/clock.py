"""Time, injected: the wall clock for records, a monotonic one for waits."""

import time
from datetime import UTC, datetime
from typing import Protocol

from everturn.wire.times import iso

__all__ = ["Clock", "SystemClock", "iso"]


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """The time in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an unknown start, never going back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
