"""How a moment is written."""

from datetime import UTC, datetime, timedelta, timezone

from everturn.core.clock import iso


def test_a_moment_is_written_in_utc_with_milliseconds() -> None:
    moment = datetime(2026, 1, 2, 1, 0, 0, 999, tzinfo=timezone(timedelta(hours=2)))

    assert iso(moment) == "2026-01-01T23:00:00.000Z"
    assert iso(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00.000Z"
