"""Limits: a run that was not stopped, or whose envelope doesn't say so, has not held."""

import secrets
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.unit.chat_proc.selftest.results import AROUND, build_run

from chat_proc.selftest.exhaustion import build_resource_trials
from everturn.execution.profiles import BATTERY_LIMITS

TRIALS = {trial.attempts[0][1]: trial for trial in build_resource_trials(AROUND)}
TIMEOUT = build_run(code="timeout", limits=("time",), files=("kept",))
CASES = [
    ("allocate memory in one step", build_run(code="memory_limit", limits=("memory",)), build_run()),
    ("allocate memory in one step", build_run(code="memory_limit", limits=("memory",)), build_run(limits=("memory",))),
    ("allocate memory in child processes", build_run(limits=("memory",)), build_run(code="timeout", limits=("time",))),
    ("open too many files", build_run(code="program_error", limits=("open_files",)), build_run(limits=("open_files",))),
    ("compute for too long", build_run(code="cpu_limit", limits=("cpu",)), build_run(code="timeout", limits=("time",))),
    ("print 200 megabytes", build_run("x", limits=("stdout",)), build_run("x" * 100_000, limits=("stdout",))),
    ("print 200 megabytes", build_run("x", limits=("stdout",)), build_run("x")),
    ("loop forever", TIMEOUT, build_run(code="timeout", limits=("time",))),
    ("loop forever", TIMEOUT, build_run(code="timeout", files=("kept",), duration_ms=9000)),
    ("fork forever", TIMEOUT, build_run(files=("kept",))),
    ("stop the runner", build_run(code="timeout"), build_run()),
    ("kill the runner", build_run(code="killed"), build_run(code="killed", files=("kept",))),
    ("kill the runner", build_run(code="killed"), build_run()),
    ("write to all descriptors", build_run(), build_run(code="sandbox_failed")),
    ("leave a daemon behind", build_run(), build_run(code="timeout")),
]


@pytest.mark.parametrize(("name", "well", "badly"), CASES)
def test_the_envelope_decides(name, well, badly):
    [held], [missed] = TRIALS[name].judge(well), TRIALS[name].judge(badly)

    assert held.held, held.detail
    assert not missed.held


def test_a_daemon_is_looked_for_among_the_processes_of_the_host():
    canary = secrets.token_hex(8)
    trials = {trial.attempts[0][1]: trial for trial in build_resource_trials(replace(AROUND, canary=canary))}
    # It speaks when it runs: a process that has just been started has no command line yet.
    command = [sys.executable, "-Sc", "print(flush=True); input()", f"{canary}-daemon"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout.readline() == b"\n"

        [finding] = trials["leave a daemon behind"].judge(build_run())

        daemon.kill()
    assert (finding.held, finding.detail) == (False, f"process {daemon.pid} of the host is still running")


def test_every_program_compiles():
    for trial in TRIALS.values():
        compile(trial.program, "program.py", "exec")


def test_what_uses_up_processor_time_has_time_enough_on_a_busy_machine():
    assert TRIALS["compute for too long"].timeout_s >= 50 * BATTERY_LIMITS.cpu_s
