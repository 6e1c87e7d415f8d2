"""Time, injected: the wall clock for records, a monotonic one for waits."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from everturn.errors import Invalid
from everturn.wire.times import iso

__all__ = ["Clock", "SystemClock", "WrongClock", "iso", "now_ms", "open_clock"]


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


class WrongClock:
    """For tests: a wall clock that is off, and steps. `steps` are (reading, seconds), from which reading on how much.

    Nothing is waited for by it, so its monotonic time is right.
    """

    def __init__(self, inner: Clock, steps: tuple[tuple[int, float], ...]) -> None:
        self._inner = inner
        self._steps = steps
        self._readings = 0

    def now(self) -> datetime:
        self._readings += 1
        reached = [seconds for reading, seconds in self._steps if reading <= self._readings]
        return self._inner.now() + timedelta(seconds=reached[-1] if reached else 0.0)

    def monotonic(self) -> float:
        return self._inner.monotonic()


def open_clock(steps: str) -> Clock:
    """The machine's clock, made wrong by what CLOCK_STEPS says. Raises Invalid."""
    return WrongClock(SystemClock(), tuple(_read_step(step) for step in steps.split(","))) if steps else SystemClock()


def now_ms(clock: Clock) -> int:
    """Milliseconds since 1970."""
    return int(clock.now().timestamp() * 1000)


def _read_step(step: str) -> tuple[int, float]:
    seconds, _, reading = step.strip().partition("@")
    try:
        return int(reading), float(seconds)
    except ValueError as error:
        raise Invalid(f"CLOCK_STEPS has {step!r}; expected seconds@reading.") from error
