"""A queue position is exact up to a maximum, and above it says that there are more."""

import pytest

from everturn.queue.model import MAX_AHEAD, QueuePosition, build_position


@pytest.mark.parametrize(
    ("counted", "position"),
    [
        (0, QueuePosition(0)),
        (MAX_AHEAD, QueuePosition(MAX_AHEAD)),
        (MAX_AHEAD + 1, QueuePosition(MAX_AHEAD, more=True)),
    ],
)
def test_a_count_becomes_a_place(counted: int, position: QueuePosition) -> None:
    assert build_position(counted) == position
