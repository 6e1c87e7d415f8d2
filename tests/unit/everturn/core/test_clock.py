"""The system clock returns UTC, and its monotonic time never goes back."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from everturn.core.clock import SystemClock, WrongClock, iso, now_ms, open_clock
from everturn.core.errors import Invalid
from everturn_testing.core import BEGINNING, FixedClock


def test_now_is_in_utc() -> None:
    assert SystemClock().now().tzinfo is UTC
    assert abs(SystemClock().now() - datetime.now(UTC)) < timedelta(seconds=5)


def test_the_monotonic_time_never_goes_back() -> None:
    clock = SystemClock()

    assert clock.monotonic() <= clock.monotonic()


def test_a_record_has_utc_times_with_milliseconds() -> None:
    berlin = timezone(timedelta(hours=1))

    assert iso(datetime(2026, 3, 1, 13, 0, 0, 1_999, tzinfo=berlin)) == "2026-03-01T12:00:00.001Z"


def test_a_wrong_clock_jumps_and_its_monotonic_time_is_right() -> None:
    right = FixedClock()
    clock = WrongClock(right, ((1, 3600.0), (3, -60.0)))

    errors_s = [(clock.now() - right.now()).total_seconds() for _ in range(4)]

    assert errors_s == [3600, 3600, -60, -60]
    assert clock.monotonic() == right.monotonic()


def test_the_clock_is_wrong_only_where_a_test_says_so() -> None:
    assert isinstance(open_clock(""), SystemClock)
    ahead = open_clock("3600@1").now() - datetime.now(UTC)

    assert timedelta(minutes=59) < ahead < timedelta(minutes=61)


def test_milliseconds_follow_the_clock() -> None:
    assert now_ms(FixedClock()) == int(BEGINNING.timestamp() * 1000)


@pytest.mark.parametrize("steps", ["3600", "@1", "x@1", "1@x", "1@1,"])
def test_steps_that_can_not_be_read_are_refused(steps: str) -> None:
    with pytest.raises(Invalid, match="CLOCK_STEPS"):
        open_clock(steps)
