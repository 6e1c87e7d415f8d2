"""Event cursors order events and are read strictly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.events.cursor import ORIGIN, EventCursor, try_parse_cursor

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
