"""Real pytest processes on small trees of tests."""

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from suite.groups import Group
from suite.lanes import Suite, run_groups
from suite.outcomes import GroupRun, is_good, render_progress

from everturn_local.processes import try_record
from everturn_local.settings import load_environment

MakeSuite = Callable[..., Suite]
ENVIRONMENT = {**load_environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they start in half the time

MEETS = """
import pathlib, time

def test_the_other_runs_at_the_same_time():
    here = pathlib.Path({folder!r})
    (here / {own!r}).touch()
    while not (here / {other!r}).exists():
        time.sleep(0.01)
"""
IS_ALONE = """
import pathlib

def test_nothing_else_runs():
    mark = pathlib.Path({folder!r}) / "running"
    mark.touch(exist_ok=False)
    mark.unlink()
    assert (pathlib.Path({folder!r}) / "a").exists()
"""
WAITS = """
import os, pathlib, signal, pytest

@pytest.fixture
def server():
    yield
    pathlib.Path({folder!r}, "stopped").touch()

def test_that_never_ends(server):
    pathlib.Path({folder!r}, "pid").write_text(str(os.getpid()))
    signal.pause()
"""
BREAKS_PYTEST = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    if call.when == "call" and item.config.option.tbstyle != "native":
        raise SystemError("AST constructor recursion depth mismatch")
"""


@pytest.fixture
def make_suite(tmp_path: Path) -> MakeSuite:
    """Writes files and gives a suite over them, with two lanes."""

    def make(files: Mapping[str, str], *groups: Group, limit_s: float = 120.0) -> Suite:
        for name, text in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        logs = tmp_path / "logs"
        logs.mkdir()
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
        return Suite(tmp_path, groups, logs, lanes=2, limit_s=limit_s, env=ENVIRONMENT)

    return make


async def test_groups_run_in_parallel_and_exclusive_ones_after_them(make_suite: MakeSuite, tmp_path: Path):
    folder = str(tmp_path)
    suite = make_suite(
        {
            "tests/x/test_x.py": IS_ALONE.format(folder=folder),
            "tests/y/test_y.py": IS_ALONE.format(folder=folder),
            "tests/a/test_a.py": MEETS.format(folder=folder, own="a", other="b"),
            "tests/b/test_b.py": MEETS.format(folder=folder, own="b", other="a"),
        },
        Group("tests/x", alone=True),
        Group("tests/y", alone=True),
        Group("tests/a"),
        Group("tests/b"),
    )
    runs: list[GroupRun] = []

    await run_groups(suite, runs.append)

    assert all(map(is_good, runs)), [run.text for run in runs]
    assert [run.group.name for run in runs][2:] == ["x", "y"]


@pytest.mark.parametrize("asked", [False, True])
async def test_a_group_on_request_runs_only_when_asked_for(make_suite: MakeSuite, asked: bool):
    files = {f"tests/{name}/test_a.py": "def test_a(): pass\n" for name in ("a", "b", "c")}
    groups = (Group("tests/a"), Group("tests/b", on_request=True), Group("tests/c", alone=True, on_request=True))
    runs: list[GroupRun] = []

    await run_groups(replace(make_suite(files, *groups), on_request=asked), runs.append)

    assert {run.group.name for run in runs} == ({"a", "b", "c"} if asked else {"a"})


async def test_each_kind_of_end_is_reported(make_suite: MakeSuite):
    suite = make_suite(
        {
            "tests/good/test_a.py": "def test_a(): pass\n",
            "tests/bad/test_a.py": "def test_a(): assert 1 == 2\n",
            "tests/empty/test_a.py": "",
            "tests/dies/test_a.py": "import os, signal\ndef test_a(): os.kill(os.getpid(), signal.SIGKILL)\n",
        },
        *(Group(f"tests/{name}") for name in ("good", "bad", "empty", "dies")),
    )

    runs: list[GroupRun] = []
    await run_groups(suite, runs.append)

    assert {run.group.name: run.exit_code for run in runs} == {"good": 0, "bad": 1, "empty": 5, "dies": -9}


async def test_a_failure_that_pytest_could_not_show_is_shown_in_another_form(make_suite: MakeSuite):
    suite = make_suite(
        {"tests/a/conftest.py": BREAKS_PYTEST, "tests/a/test_a.py": "def test_a(): assert 'the reason' == 0\n"},
        Group("tests/a"),
    )

    runs: list[GroupRun] = []
    await run_groups(suite, runs.append)

    [run] = runs

    assert run.exit_code == 3
    assert "the reason" not in run.text.partition("INTERNALERROR")[0]
    assert "the reason" in run.again


async def test_groups_that_do_not_fit_into_the_time_are_reported(make_suite: MakeSuite):
    suite = make_suite({"tests/a/test_a.py": "def test_a(): pass\n"}, Group("tests/a"), Group("tests/b"), limit_s=0.0)

    runs: list[GroupRun] = []
    await run_groups(suite, runs.append)

    assert sorted(map(render_progress, runs)) == [
        f"{name}: 0 passed, 0 failed, 1 error, not started: the time limit was reached after 0.0 s"
        for name in ("a", "b")
    ]


async def test_tests_that_are_interrupted_stop_what_they_started(make_suite: MakeSuite, tmp_path: Path):
    suite = make_suite({"tests/a/test_a.py": WAITS.format(folder=str(tmp_path))}, Group("tests/a"))
    running = asyncio.create_task(run_groups(suite, [].append))
    pid = await asyncio.to_thread(wait_pid, tmp_path / "pid")

    running.cancel()
    await asyncio.wait([running])

    assert running.cancelled()
    assert (tmp_path / "stopped").exists()
    assert try_record(pid) is None


def wait_pid(file: Path) -> int:
    while not file.exists() or not file.read_text():
        time.sleep(0.01)
    return int(file.read_text())


async def test_tests_can_be_interrupted_also_where_we_were_made_to_ignore_it(make_suite: MakeSuite):
    asks = "import signal\ndef test_a(): assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    suite = make_suite({"tests/a/test_a.py": asks}, Group("tests/a"))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    runs: list[GroupRun] = []

    try:
        await run_groups(suite, runs.append)
    finally:
        signal.signal(signal.SIGINT, before)

    assert is_good(runs[0]), runs[0].text
