"""Rows of a bench, and a bench as a script."""

import itertools
import json

import pytest
from helpers.goals import (
    HEADER,
    Goal,
    build_goal,
    measure_medians,
    measure_ms,
    render_json,
    render_table,
    run_goals,
)


def test_a_goal_holds_up_to_its_target_and_another_from_its_target_on() -> None:
    assert build_goal("fast", 3.0, 2.0, 1.5) == Goal("fast", 3.0, 2.0, 1.5, 1.5, True)
    assert build_goal("fast", 3.1, 2.0, 1.5).holds is False
    assert build_goal("found", 0.95, 1.0, 0.95, at_least=True).holds is True
    assert build_goal("found", 0.9, 1.0, 0.95, at_least=True).holds is False


def test_a_row_without_a_target_is_informational() -> None:
    row = build_goal("reader", 3.0, 2.0)

    assert (row.ratio, row.target, row.holds) == (1.5, None, None)
    assert render_table([row]) == f"{HEADER}\nreader | 3.000 | 2.000 | 1.50 | - | -"


def test_json_has_every_field_of_every_row() -> None:
    (row,) = json.loads(render_json([build_goal("fast", 3.0, 2.0, 1.2)]))

    assert row == {"goal": "fast", "ours": 3.0, "baseline": 2.0, "ratio": 1.5, "target": 1.2, "holds": False}


def test_a_bench_prints_rows_and_fails_if_a_goal_is_missed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.py"])

    good = run_goals(None, lambda: [build_goal("a", 1.0, 1.0, 1.0), build_goal("b", 9.0, 1.0)])
    bad = run_goals(None, lambda: [build_goal("a", 1.0, 1.0, 1.0), build_goal("c", 9.0, 1.0, 2.0)])

    assert (good, bad) == (0, 1)
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "a | 1.000 | 1.000 | 1.00 | 1 | yes",
        "c | 9.000 | 1.000 | 9.00 | 2 | NO",
    ]


def test_a_bench_takes_json_and_its_own_numbers_as_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.py", "--json", "--rows", "7"])

    run_goals(None, lambda rows, runs: [build_goal("a", rows, runs)], rows=100, runs=2)

    (row,) = json.loads(capsys.readouterr().out)
    assert (row["ours"], row["baseline"]) == (7, 2)


async def test_subjects_are_measured_in_turns_and_warming_up_does_not_count() -> None:
    order: list[str] = []
    numbers = itertools.count(1)

    async def one() -> float:
        order.append("one")
        return next(numbers)

    async def two() -> float:
        order.append("two")
        return 0.5

    medians = await measure_medians([one, two], 3, warmups=1)

    assert medians == [3, 0.5]
    assert order == ["one", "two"] * 4


async def test_an_action_is_timed_in_milliseconds() -> None:
    ran: list[int] = []

    async def act() -> None:
        ran.append(1)

    assert 0 < await measure_ms(act) < 1_000
    assert ran == [1]
