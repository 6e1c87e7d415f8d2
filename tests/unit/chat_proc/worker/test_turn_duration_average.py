"""The average duration of turns follows its last turns."""

import pytest

from chat_proc.worker.presence import TurnDurationAverage


def test_before_a_turn_has_ended_nothing_is_known() -> None:
    assert TurnDurationAverage().turn_s is None


def test_the_first_turn_is_the_mean_and_later_ones_move_it() -> None:
    turn_average = TurnDurationAverage()
    turn_average.note(10)
    assert turn_average.turn_s == 10

    for _ in range(50):
        turn_average.note(20)

    assert turn_average.turn_s == pytest.approx(20, abs=0.1)


def test_one_long_turn_does_not_make_the_mean() -> None:
    turn_average = TurnDurationAverage()
    turn_average.note(10)
    turn_average.note(100)

    assert turn_average.turn_s == pytest.approx(19)
