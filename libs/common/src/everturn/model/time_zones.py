"""Time zones of persons, by the names of the IANA database."""

from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

MAX_ZONE_CHARS = 64
_NO_ZONES = frozenset({"Factory", "localtime"})
"""Files of the database that are no place: not set, and that of this machine."""


@cache
def load_zone_names() -> frozenset[str]:
    """All names that this machine knows. The first call reads several hundred files; call it off an event loop."""
    return frozenset(available_timezones()) - _NO_ZONES


def try_build_local_time(now_utc: str, zone: str) -> str | None:
    """The date, weekday and time of a zone, such as `Sunday 2026-03-01 13:00 (UTC+01:00)`; `now_utc` is ISO 8601.

    None for a zone that is not known here: a newer version or a machine with another database may have accepted it.
    """
    try:
        here = datetime.fromisoformat(now_utc).replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
    except (ValueError, OSError, KeyError):  # KeyError: ZoneInfoNotFoundError
        return None
    offset = f"{here:%z}"
    return f"{here:%A %Y-%m-%d %H:%M} (UTC{offset[:3]}:{offset[3:5]})"
