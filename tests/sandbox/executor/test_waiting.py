"""Programs that start as a fork of many imports, behind the real walls: what they can do, and what is their own."""

import asyncio
import secrets
import shutil
import sys
from pathlib import Path

import pytest

from chat_proc.sandbox.local_supervisor import load_interpreter, open_supervisor
from chat_proc.sandbox.results import pack_inputs
from chat_proc.sandbox.supervised import SupervisorFailed, run_supervised
from everturn.execution.messages import Boot, Capability, Finished, GatewayCall, Launch, RunLimits, ToolReply, UidRange

COMMAND = [sys.executable, "-I", "-m", "exec_supervisor"]
PYTHON = Path(__file__).parents[3] / ".venv-sandbox" / "bin" / "python"
IMPORTS = ("numpy", "matplotlib.pyplot")


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False)


async def run_ahead(program: str, preload: tuple[str, ...] = IMPORTS, timeout_s: float = 40.0) -> Finished:
    """The end of a program in a sandbox that has these imports before it is there."""
    folder = f"/tmp/everturn-run-{secrets.token_hex(8)}"
    interpreter, bwrap = await load_interpreter(PYTHON), shutil.which("bwrap") or ""
    boot = Boot(RunLimits(), interpreter, bwrap, folder, UidRange(20_000, 20_999), preload)
    async with open_supervisor(COMMAND, boot) as booted:
        launch = Launch("run", program, (), timeout_s, boot.limits, Capability(), "n")
        done = await run_supervised(booted, launch, list(pack_inputs({})), refuse, asyncio.Event())
    return done.finished


PARALLEL = """
import sys
assert {"numpy", "matplotlib.pyplot", "asyncio"} <= set(sys.modules)
import asyncio, concurrent.futures, multiprocessing, subprocess
import numpy as np

def double(x): return 2 * x

def send(end): end.send("sent")

ones = np.ones((400, 400))
print(float((ones @ ones)[0, 0]))
here, there = multiprocessing.Pipe()
multiprocessing.get_context("fork").Process(target=send, args=(there,)).start()
print(here.recv())
with concurrent.futures.ThreadPoolExecutor(2) as pool: print(list(pool.map(double, [4, 5])))
print(subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True, text=True, check=True).stdout, end="")
process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 3")
print(await process.wait())
import numpy.random, random
print(numpy.random.random(), random.random())
"""


async def test_threads_processes_loops_and_random_numbers_work_in_a_fork(bubblewrap_sandbox):
    first, second = [await run_ahead(PARALLEL) for _ in range(2)]

    assert first.report.error is None, first.report.error
    *reported, numbers = first.report.stdout_tail.splitlines()
    assert reported == ["400.0", "sent", "[8, 10]", "7", "3"]
    assert set(numbers.split()).isdisjoint(second.report.stdout_tail.split())


async def test_a_pool_of_processes_says_why_it_can_not_be_made(bubblewrap_sandbox):
    finished = await run_ahead("import multiprocessing; multiprocessing.Pool(2)", preload=())

    assert "use threads or subprocess" in finished.report.error.message


PEEP = """
import os
def denied(attempt):
    try: attempt()
    except OSError as error: return type(error).__name__
    return "allowed"
print(denied(lambda: open("/proc/1/environ").read()), denied(lambda: open("/proc/1/mem", "rb").read(1)))
print(denied(lambda: os.listdir("/proc/1/fd")), denied(lambda: os.readlink("/proc/1/exe")))
print(sorted(os.listdir("/proc/self/fd"), key=int)[:3], os.getppid())
"""


async def test_the_runner_is_closed_to_the_program_that_came_from_it(bubblewrap_sandbox):
    finished = await run_ahead(PEEP, preload=("colorsys",))

    lines = finished.report.stdout_tail.splitlines()
    assert lines[:2] == ["PermissionError PermissionError"] * 2
    assert lines[2] == "['0', '1', '2'] 1"


async def test_memory_that_a_program_takes_does_not_end_the_runner_it_came_from(bubblewrap_sandbox):
    finished = await run_ahead("kept = []\nwhile True: kept.append(bytearray(1 << 24))", preload=("numpy",))

    assert finished.verdict == "ended"
    assert "memory" in (*finished.limits, *finished.report.limits)


async def test_a_module_that_fails_to_preload_fails_the_boot(bubblewrap_sandbox):
    with pytest.raises(SupervisorFailed, match="nowhere_at_all can't be imported: ModuleNotFoundError"):
        await run_ahead("pass", preload=("colorsys", "nowhere_at_all"))
