"""The machine's clock tells UTC and never waits backwards."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from everturn.model.ids import Ids, RandomIds
from everturn.ports.clock import Clock, SystemClock, iso
from everturn.testing.fixed_clock import FixedClock
from everturn.testing.port_shape import find_differences
from everturn.testing.sequential_ids import SequentialIds


def test_now_is_in_utc() -> None:
    assert SystemClock().now().tzinfo is UTC
    assert abs(SystemClock().now() - datetime.now(UTC)) < timedelta(seconds=5)


def test_the_monotonic_time_never_goes_back() -> None:
    clock = SystemClock()

    assert clock.monotonic() <= clock.monotonic()


def test_a_record_tells_utc_with_milliseconds() -> None:
    berlin = timezone(timedelta(hours=1))

    assert iso(datetime(2026, 3, 1, 13, 0, 0, 1_999, tzinfo=berlin)) == "2026-03-01T12:00:00.001Z"


@pytest.mark.parametrize(
    ("port", "driver"), [(Clock, SystemClock), (Clock, FixedClock), (Ids, RandomIds), (Ids, SequentialIds)]
)
def test_a_driver_takes_the_ports_calls(port: type, driver: type) -> None:
    assert find_differences(port, driver) == []
