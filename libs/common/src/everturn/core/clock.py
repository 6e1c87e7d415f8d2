"""Time, injected: the wall clock for records, a monotonic one for waits; the format of times; a person's time zone."""

import time
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Protocol
from zoneinfo import ZoneInfo, available_timezones

from everturn.core.errors import Invalid

MAX_ZONE_CHARS = 64
_NO_ZONES = frozenset({"Factory", "localtime"})
"""Files of the database that are not places: unset, and that of this machine."""


def iso(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds and a Z, as in every record and event."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """The time in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class WrongClock:
    """For tests: a wall clock that is wrong and jumps. `steps` are (reading, seconds): from that reading on, add so
    many.

    Waits don't use it, so its monotonic time is right.
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
    """The machine's clock, shifted as CLOCK_STEPS says. Raises Invalid."""
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


@cache
def load_zone_names() -> frozenset[str]:
    """All names that this machine knows. The first call reads several hundred files; call it off an event loop."""
    return frozenset(available_timezones()) - _NO_ZONES


def try_build_local_time(now_utc: str, zone: str) -> str | None:
    """The date, weekday and time of a zone, such as `Sunday 2026-03-01 13:00 (UTC+01:00)`; `now_utc` is ISO 8601.

    None for a zone unknown here: a newer version or a machine with another database can have accepted it.
    """
    try:
        here = datetime.fromisoformat(now_utc).replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
    except (ValueError, OSError, KeyError):  # KeyError: ZoneInfoNotFoundError
        return None
    offset = f"{here:%z}"
    return f"{here:%A %Y-%m-%d %H:%M} (UTC{offset[:3]}:{offset[3:5]})"
