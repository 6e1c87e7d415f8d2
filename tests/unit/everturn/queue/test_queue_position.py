"""A place in the queue is told up to a number, and beyond it as more than that."""

import pytest

from everturn.queue.ports import MAX_AHEAD, QueuePosition, build_position


@pytest.mark.parametrize(
    ("counted", "told"),
    [
        (0, QueuePosition(0)),
        (MAX_AHEAD, QueuePosition(MAX_AHEAD)),
        (MAX_AHEAD + 1, QueuePosition(MAX_AHEAD, more=True)),
    ],
)
def test_a_count_becomes_a_place(counted: int, told: QueuePosition) -> None:
    assert build_position(counted) == told
