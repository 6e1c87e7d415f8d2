import re

import pytest
from suite.groups import Group
from suite.outcomes import (
    MAX_SHOWN_LINES,
    TAIL_LINES,
    Counts,
    GroupRun,
    build_counts,
    count_to_repeat,
    is_flaky,
    is_good,
    parse_counts,
    render_failure,
    render_flaky,
    render_progress,
    render_slowest,
    render_total,
    try_find_last_file,
)

PASSING = """\
tests/unit/test_a.py::test_one PASSED    [ 50%]
tests/unit/test_a.py::test_two[5 passed in 3s] PASSED    [100%]

============================= slowest 10 durations =============================
1.50s call     tests/unit/test_a.py::test_two[5 passed in 3s]
0.25s setup    tests/unit/test_a.py::test_one

(8 durations < 0.005s hidden.  Use -vv to show these durations.)
======================== 2 passed, 1 skipped, 3 warnings in 1.80s ========================
"""
FAILING = """\
tests/unit/test_b.py::test_one FAILED    [ 50%]
=================================== FAILURES ===================================
the failure itself
=========================== short test summary info ============================
FAILED tests/unit/test_b.py::test_one - assert 1 == 2
========== 1 failed, 4 passed, 2 errors in 3661.00s (1:01:01) ==========
"""
BROKEN = """\
tests/unit/test_b.py::test_one PASSED    [ 50%]
tests/unit/deep/test_c.py::test_with a blank[x]
INTERNALERROR> SystemError: AST constructor recursion depth mismatch
========== 1 passed in 3.00s ==========
"""
CI_LOOKS_FOR = re.compile(r"(passed|failed|error|no tests ran).* in [0-9.]+s")


def run(text: str, exit_code: int | None = 0, again: str = "") -> GroupRun:
    return GroupRun(Group("tests/unit"), exit_code, 2.0, text, again)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (PASSING, Counts(passed=2, skipped=1)),
        (FAILING, Counts(passed=4, failed=1, errors=2)),
        ("1 failed, 750 passed in 92.15s (0:01:32)\n", Counts(passed=750, failed=1)),
        ("===== 1 error in 0.20s =====\n", Counts(errors=1)),
        ("===== no tests ran in 0.01s =====\n", Counts()),
        ("a test wrote: 3 passed in time\n", Counts()),
        ("", Counts()),
    ],
)
def test_the_last_line_of_pytest_is_counted(text: str, counts: Counts):
    assert parse_counts(text) == counts


def test_a_group_succeeds_only_if_its_tests_ran():
    assert is_good(run(PASSING))
    assert is_good(run("1 skipped in 0.10s\n"))
    assert not is_good(run(PASSING, exit_code=1))
    assert not is_good(run(PASSING, exit_code=None))
    assert not is_good(run("", exit_code=0))
    assert not is_good(run("no tests ran in 0.01s\n", exit_code=5))


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (None, "stopped at the time limit"),
        (-11, "signal 11"),
        (3, "pytest crashed"),
        (5, "no tests"),
        (99, "exit code 99"),
    ],
)
def test_a_group_that_is_lost_counts_as_an_error_and_says_why(exit_code: int | None, words: str):
    lost = run("tests/unit/test_b.py::test_one PASSED\n", exit_code)

    assert build_counts(lost) == Counts(errors=1)
    assert words in render_progress(lost)
    assert words in render_failure(lost)


def test_failed_tests_are_not_counted_twice():
    assert build_counts(run(FAILING, exit_code=1)) == Counts(passed=4, failed=1, errors=2)


def test_a_failure_is_shown_from_its_heading_on():
    shown = render_failure(run(FAILING, exit_code=1))

    assert "the failure itself" in shown
    assert "FAILED    [ 50%]" not in shown


def test_without_a_heading_the_end_is_shown():
    text = "".join(f"line {number}\n" for number in range(1_000))

    shown = render_failure(run(text, exit_code=-9))

    assert "line 999" in shown
    assert f"line {1_000 - TAIL_LINES - 1}\n" not in shown


def test_a_long_failure_keeps_its_beginning_and_its_end():
    lines = "".join(f"line {number}\n" for number in range(10 * MAX_SHOWN_LINES))

    shown = render_failure(run(f"=== FAILURES ===\n{lines}last", exit_code=1))

    assert "line 0\n" in shown
    assert shown.endswith("last")
    assert "lines are left out" in shown
    assert len(shown.splitlines()) == MAX_SHOWN_LINES + 2


def test_after_a_crash_the_last_file_is_repeated_and_shown():
    assert try_find_last_file(BROKEN) == "tests/unit/deep/test_c.py"
    assert try_find_last_file("INTERNALERROR> x") is None

    shown = render_failure(run(BROKEN, exit_code=3, again=FAILING))

    assert "AST constructor recursion depth mismatch" in shown
    assert "the failure itself" in shown


def test_the_slowest_of_all_groups_come_first():
    other = "7.00s teardown tests/e2e/test_x.py::test_long\n"

    assert [line.split()[0] for line in render_slowest([run(PASSING), run(other)]).splitlines()] == [
        "7.00s",
        "1.50s",
        "0.25s",
    ]


def test_the_total_has_the_form_of_pytests_last_line():
    total = render_total([run(PASSING), run(FAILING, exit_code=1), run("", exit_code=-11)], 402.3)

    assert total == "6 passed, 1 failed, 3 errors, 1 skipped in 402.30s"
    assert CI_LOOKS_FOR.search(total)
    assert parse_counts(f"{total}\n") == Counts(passed=6, failed=1, errors=3, skipped=1)


def test_the_total_of_good_groups_says_that_none_failed():
    assert render_total([run(PASSING)], 1.0) == "2 passed, 0 failed, 1 skipped in 1.00s"


SECOND = "3 passed, 4 deselected in 1.00s\n"


def flaky(second: str = SECOND, second_exit_code: int | None = 0) -> GroupRun:
    return GroupRun(Group("tests/unit"), 1, 2.0, FAILING, second=second, second_exit_code=second_exit_code)


def test_only_failed_tests_are_repeated():
    assert count_to_repeat(run(FAILING, exit_code=1)) == 3
    assert count_to_repeat(run(FAILING, exit_code=2)) == 0
    assert count_to_repeat(run(PASSING)) == 0


def test_a_test_that_passes_on_repeat_is_flaky_and_shown():
    assert is_flaky(flaky())
    assert build_counts(flaky()) == Counts(passed=7)
    assert "the failure itself" in render_failure(flaky())
    assert render_flaky([flaky(), run(PASSING)]).startswith("flaky: 3,")
    assert render_flaky([run(PASSING)]) == ""


@pytest.mark.parametrize(
    ("second", "second_exit_code"),
    [("1 failed, 2 passed in 1.00s\n", 1), ("", None), ("4 deselected in 0.10s\n", 0), (SECOND, -9)],
)
def test_a_test_that_fails_again_has_failed(second: str, second_exit_code: int | None):
    failed = flaky(second, second_exit_code)

    assert not is_flaky(failed)
    assert build_counts(failed) == Counts(passed=4, failed=1, errors=2)
    assert render_flaky([failed]) == ""
