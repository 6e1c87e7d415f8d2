"""A test's clock moves only on request."""

from everturn_testing.core import BEGINNING, FixedClock


def test_both_times_move_together_and_only_on_request() -> None:
    clock = FixedClock()
    assert (clock.now(), clock.monotonic()) == (BEGINNING, 0.0)

    clock.advance(1.5)

    assert ((clock.now() - BEGINNING).total_seconds(), clock.monotonic()) == (1.5, 1.5)
