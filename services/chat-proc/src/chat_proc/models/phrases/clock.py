"""Answers questions about the date and the time from the clock in ANNOUNCE."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_TIME = re.compile(
    r"\bwhat(?:'s| is) the (?:current )?time\b|\bwhat time is it\b|\bcurrent time\b|^\W*(?:the )?time\W*$", re.I
)
_DAY = re.compile(
    r"\b(?:what|which)(?:'s| is| are| was| will be)? ?(?:the |today'?s |tomorrow'?s |yesterday'?s |current )*"
    r"(?:date|day of the week|weekday)\b"
    r"|\b(?:what|which) (?:date|day|weekday|year|month) (?:is|was|will) (?:it|today|tomorrow|yesterday)\b"
    r"|\b(?:what|which) (?:day|weekday|date|year|month) (?:do we have|are we)\b"
    r"|\bwhat(?:'s| is) today\b|\b(?:today'?s|current) date\b|^\W*(?:tell me )?(?:the )?date\W*$",
    re.I,
)
_MAX_CHARS = 120


def try_tell_time(text: str, now_utc: str, timezone: str) -> str | None:
    """The user's date and time; None if the text does not ask for them. `now_utc` is ISO 8601."""
    wants_time, wants_day = _TIME.search(text) is not None, _DAY.search(text) is not None
    if len(text) > _MAX_CHARS or not (wants_time or wants_day):
        return None
    try:
        now = datetime.fromisoformat(now_utc)
    except ValueError:
        return "I can't see a clock here."
    zone, name = _choose_zone(timezone)
    here = (now if now.tzinfo else now.replace(tzinfo=UTC)).astimezone(zone)
    day, verb = here, "It is"
    if "tomorrow" in text.lower():
        day, verb = here + timedelta(days=1), "Tomorrow is"
    elif "yesterday" in text.lower():
        day, verb = here - timedelta(days=1), "Yesterday was"
    date = f"{day:%A}, {day.day} {day:%B %Y}"
    return f"{verb} {date}, {here:%H:%M} ({name})." if wants_time else f"{verb} {date} ({name})."


def _choose_zone(timezone: str) -> tuple[ZoneInfo, str]:
    """The time zone and its name; UTC if unknown."""
    try:
        return ZoneInfo(timezone), timezone
    except (ValueError, OSError, KeyError):
        return ZoneInfo("UTC"), "UTC"
