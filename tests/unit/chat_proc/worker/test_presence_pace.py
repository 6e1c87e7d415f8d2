"""The pace of a worker follows its last turns."""

import pytest

from chat_proc.worker.presence import Pace


def test_before_a_turn_has_ended_nothing_is_known() -> None:
    assert Pace().turn_s is None


def test_the_first_turn_is_the_mean_and_later_ones_move_it() -> None:
    pace = Pace()
    pace.note(10)
    assert pace.turn_s == 10

    for _ in range(50):
        pace.note(20)

    assert pace.turn_s == pytest.approx(20, abs=0.1)


def test_one_long_turn_does_not_make_the_mean() -> None:
    pace = Pace()
    pace.note(10)
    pace.note(100)

    assert pace.turn_s == pytest.approx(19)
