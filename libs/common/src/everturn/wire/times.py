"""How records, views and events write a moment."""

from datetime import UTC, datetime


def iso(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds and a Z, as every record and event writes it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
