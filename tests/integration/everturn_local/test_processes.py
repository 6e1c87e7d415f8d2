"""Child processes and the records of them."""

import os
import signal
import sys
from pathlib import Path

from everturn_local.processes import (
    Child,
    kill_group,
    remove_record,
    run_leftover_cleanup,
    save_record,
    try_record,
)

SLEEP = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
STUBBORN = [
    sys.executable,
    "-S",
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('set', flush=True); signal.pause()",
]


def spawn(argv: list[str], tmp_path: Path) -> Child:
    return Child(argv, env={}, log=tmp_path / "log")


def test_stop_sends_the_signals_of_its_steps(tmp_path: Path):
    assert spawn(SLEEP, tmp_path).stop([(signal.SIGTERM, 10.0)]) == -signal.SIGTERM


def test_stop_kills_at_last(tmp_path: Path):
    child = spawn(STUBBORN, tmp_path)
    while b"set" not in (tmp_path / "log").read_bytes():
        assert child.exit_code is None

    assert child.stop([(signal.SIGTERM, 0.05)]) == -signal.SIGKILL


async def test_an_exit_can_be_awaited_also_twice_and_late(tmp_path: Path):
    child = spawn([sys.executable, "-S", "-c", "raise SystemExit(3)"], tmp_path)

    assert await child.wait_exit() == 3
    assert await child.wait_exit() == 3
    child.send(signal.SIGTERM)


def test_output_is_appended_to_the_log(tmp_path: Path):
    (tmp_path / "log").write_text("before\n")

    spawn([sys.executable, "-S", "-c", "print('after')"], tmp_path).stop([])

    assert (tmp_path / "log").read_text().startswith("before\n")


def test_a_record_finds_its_process_and_no_other(tmp_path: Path):
    child = spawn(SLEEP, tmp_path)
    save_record(tmp_path, "worker-1", child.pid)

    assert run_leftover_cleanup(tmp_path) == ["worker-1"]
    assert child.stop([]) == -signal.SIGKILL
    assert try_record(child.pid) is None
    assert list(tmp_path.glob("*.json")) == []


def test_a_removed_or_cut_off_record_ends_nobody(tmp_path: Path):
    save_record(tmp_path, "mine", os.getpid())
    remove_record(tmp_path, "mine")
    (tmp_path / "cut.json").write_text('{"boot": "')

    assert run_leftover_cleanup(tmp_path) == []


def test_killing_a_group_that_is_gone_is_no_error(tmp_path: Path):
    child = spawn([sys.executable, "-S", "-c", ""], tmp_path)
    child.stop([(signal.SIGTERM, 10.0)])

    kill_group(child.pid)

    assert try_record(child.pid) is None
