"""The command on small trees of tests, as `make test` runs it on ours."""

import asyncio
import re
from pathlib import Path

import pytest
from suite.groups import Group, TestsWithoutGroup
from suite.lanes import Suite
from suite.run import run_suite

from everturn_local.settings import load_environment

GOOD, BAD = "def test_a(): pass\n", "def test_b(): assert 'the reason' == 0\n"


def build_suite(root: Path, *groups: str, max_flaky: int = 0) -> Suite:
    env = {**load_environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return Suite(
        root,
        [Group(name) for name in groups],
        root / "logs",
        lanes=2,
        limit_s=120.0,
        env=env,
        max_flaky=max_flaky,
    )


def save_test(root: Path, group: str, text: str) -> None:
    (root / group).mkdir(parents=True)
    (root / group / "test_it.py").write_text(text)


async def test_all_good_tests_end_with_code_0_and_a_total(tmp_path: Path):
    save_test(tmp_path, "tests/a", GOOD)
    save_test(tmp_path, "tests/b", GOOD)
    shown: list[str] = []

    code = await run_suite(build_suite(tmp_path, "tests/a", "tests/b"), shown.append)

    assert code == 0
    assert re.fullmatch(r"2 passed, 0 failed in [\d.]+s", shown[-1])


async def test_a_failure_exits_with_1_and_is_printed_before_the_total(tmp_path: Path):
    save_test(tmp_path, "tests/a", GOOD)
    save_test(tmp_path, "tests/b", BAD)
    shown: list[str] = []

    code = await run_suite(build_suite(tmp_path, "tests/a", "tests/b"), shown.append)

    assert code == 1
    assert sorted(line.partition(",")[0] for line in shown[:2]) == ["tests: a: 1 passed", "tests: b: 0 passed"]
    assert "the reason" in shown[-2]
    assert re.fullmatch(r"1 passed, 1 failed in [\d.]+s", shown[-1])


FAILS_ONCE = """
import pathlib

def test_that_fails_once():
    mark = pathlib.Path(__file__).with_name("was_here")
    was_here = mark.exists()
    mark.touch()
    assert was_here, "the reason"

def test_that_passes_runs_once_only():
    mark = pathlib.Path(__file__).with_name("passed")
    assert not mark.exists()
    mark.touch()
"""


async def test_a_failure_that_passes_when_rerun_does_not_fail_the_run(tmp_path: Path):
    save_test(tmp_path, "tests/a", FAILS_ONCE)
    shown: list[str] = []

    code = await run_suite(build_suite(tmp_path, "tests/a", max_flaky=1), shown.append)

    assert code == 0
    assert "the reason" in shown[-3]
    assert shown[-2].startswith("flaky: 1,")
    assert re.fullmatch(r"2 passed, 0 failed in [\d.]+s", shown[-1])


@pytest.mark.parametrize("max_flaky", [1, 2])
async def test_a_failure_that_stays_or_is_one_too_many_fails_the_run(tmp_path: Path, max_flaky: int):
    save_test(tmp_path, "tests/a", FAILS_ONCE)
    save_test(tmp_path, "tests/b", BAD)
    shown: list[str] = []

    code = await run_suite(build_suite(tmp_path, "tests/a", "tests/b", max_flaky=max_flaky), shown.append)

    assert code == 1
    seen_steady = max_flaky == 2
    assert shown[-1].startswith("2 passed, 1 failed" if seen_steady else "1 passed, 2 failed")


async def test_tests_outside_all_groups_are_refused_before_anything_runs(tmp_path: Path):
    save_test(tmp_path, "tests/a", GOOD)
    save_test(tmp_path, "tests/b", GOOD)

    with pytest.raises(TestsWithoutGroup, match=r"tests/b/test_it\.py"):
        await run_suite(build_suite(tmp_path, "tests/a"), print)

    assert not (tmp_path / "logs").exists()


async def test_a_termination_stops_the_tests(tmp_path: Path):
    save_test(tmp_path, "tests/a", TERMINATES_ITS_PARENT)

    running = asyncio.create_task(run_suite(build_suite(tmp_path, "tests/a"), print))
    await asyncio.wait([running])

    assert running.cancelled()


TERMINATES_ITS_PARENT = """
import os, signal

def test_a():
    os.kill(os.getppid(), signal.SIGTERM)
    signal.pause()
"""
