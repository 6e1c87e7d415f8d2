"""Event cursors order events and are read strictly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.core.leases import ORIGIN, EventCursor, LeaseTiming, try_parse_cursor
from everturn.core.retry import RetryPolicy
from everturn.postgres.pool import build_server_settings

numbers = st.integers(0, (1 << 63) - 1)
cursors = st.builds(EventCursor, numbers, numbers)


@given(cursors)
def test_a_cursor_reads_back(cursor: EventCursor) -> None:
    assert try_parse_cursor(str(cursor)) == cursor


@given(cursors, cursors)
def test_a_newer_fence_comes_after_every_event_of_an_older_one(one: EventCursor, other: EventCursor) -> None:
    assert (one < other) == ((one.fence, one.n) < (other.fence, other.n))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "1",
        "1-",
        "-1",
        "1-2-3",
        "a-b",
        "1 -2",
        "+1-2",
        "\u0661-1",
        f"{1 << 63}-0",
        f"0-{1 << 63}",
        "1" * 20 + "-1",
    ],
)
def test_other_texts_are_no_cursor(text: str) -> None:
    assert try_parse_cursor(text) is None


def test_the_origin_is_before_every_event() -> None:
    assert str(ORIGIN) == "0-0"
    assert EventCursor(0, 1) > ORIGIN


@pytest.mark.parametrize("ttl_s", [1.0, 2.0, 5.0, 15.0, 60.0, 120.0])
def test_every_time_of_a_lease_follows_from_how_long_it_lasts(ttl_s: float) -> None:
    timing = LeaseTiming(ttl_s)

    assert 3 * timing.renew_every_s < timing.sure_s < timing.give_up_s < ttl_s
    assert timing.lock_timeout_s < timing.idle_in_transaction_s <= ttl_s / 3
    assert sum(RetryPolicy.within_lease(timing).pauses_s) < ttl_s / 2
    assert build_server_settings(timing)["lock_timeout"] == f"{timing.lock_timeout_s * 1000:.0f}ms"
