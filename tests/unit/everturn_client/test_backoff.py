"""Delays between attempts."""

from everturn_client.backoff import Backoff, Timings

TIMINGS = Timings(first_delay_s=1.0, max_delay_s=5.0, max_server_delay_s=7.0)


def test_delays_double_up_to_the_cap_and_can_be_reset() -> None:
    backoff = Backoff(TIMINGS, lambda: 1.0)

    delays = [backoff.next_delay_s() for _ in range(5)]
    backoff.reset()

    assert delays == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert backoff.next_delay_s() == 1.0


def test_delays_are_jittered() -> None:
    assert Backoff(TIMINGS, lambda: 0.0).next_delay_s() == 0.5
    assert Backoff(TIMINGS, lambda: 0.5).next_delay_s() == 0.75


def test_a_delay_requested_by_the_server_is_honoured_within_bounds() -> None:
    backoff = Backoff(TIMINGS, lambda: 0.5)

    assert backoff.next_delay_s(3.0) == 3.5
    assert backoff.next_delay_s(9999.0) == 7.5


def test_many_failures_do_not_overflow() -> None:
    backoff = Backoff(TIMINGS, lambda: 1.0)

    assert {backoff.next_delay_s() for _ in range(5000)} == {1.0, 2.0, 4.0, 5.0}
