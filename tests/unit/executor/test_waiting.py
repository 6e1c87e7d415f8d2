"""The program's process as a waiting fork: it runs the program that it receives, and nothing without one."""

import ast
import os
import select
import subprocess
import sys

import pytest

from everturn.execution.framing import encode_frame
from everturn.execution.messages import RunLimits, Start
from everturn.execution.records import build_message

RUN = """
import os, sys
from everturn.execution.messages import MIB, Start
from everturn.execution.framing import FrameDecoder
from everturn.execution.records import parse_message
from executor.program import fork_program
program = fork_program(None)
[frame] = FrameDecoder(8 * MIB).feed(sys.stdin.buffer.read())
program.begin(parse_message(frame, Start))
ends = (program.stdout, program.stderr, program.failure)
out, err, failure = (os.fdopen(end, errors="replace").read() for end in ends)
code = os.waitstatus_to_exitcode(os.waitpid(program.pid, 0)[1])
print(repr((code, out, err, bool(failure))))
"""


def run(text: str) -> tuple[int, str, str, bool]:
    """Exit code, output, errors of a program, and whether it reported a failure."""
    start = Start("run-1", text, (), RunLimits(processes=4000), "n", (), 8 << 30)
    done = subprocess.run(
        [sys.executable, "-I", "-c", RUN],
        input=encode_frame(build_message(start), 8 << 20),
        capture_output=True,
        check=True,
        timeout=50,
    )
    code, out, err, failed = ast.literal_eval(done.stdout.decode())
    return code, out, err, failed


def test_it_runs_the_program_and_knows_its_run():
    assert run("import os; print('on', os.environ['EXECUTION_ID'])") == (0, "on run-1\n", "", False)


def test_a_program_longer_than_a_pipe_arrives_whole():
    assert run(f"x = '{'x' * 900_000}'\nprint(len(x))") == (0, "900000\n", "", False)


def test_a_failure_is_reported_and_sets_the_exit_code():
    code, out, err, failed = run("print('before')\n1/0")

    assert (code, out, failed) == (1, "before\n", True)
    assert "ZeroDivisionError" in err


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.stdout.write('written')",
        "import atexit; atexit.register(print, 'written', end='')",
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('written', end=''))).start()",
        "class A:\n    def __del__(self): print('written', end='')\na = A(); a.self = a",
        "import functools, sys\n@functools.cache\ndef f(): return open(1, 'w', closefd=False)\nf().write('written')",
        "f = open(1, 'w', closefd=False); f.write('written')",
        "f = open(1, 'w', closefd=False); f.write('written'); raise SystemExit(0)",
        "import sys; sys.kept = open(1, 'wb', closefd=False); sys.kept.write(b'written')",
    ],
    ids=["buffer", "exit handler", "thread", "last word", "cache", "open file", "exit", "beyond the program"],
)
def test_exit_handlers_run_as_in_python(program):
    assert run(program) == (0, "written", "", False)


def test_random_numbers_are_its_own():
    program = "import random; print(random.random())"

    assert run(program)[1] != run(program)[1]


def test_a_fork_that_dies_while_waiting_is_no_crash():
    script = """
import os, signal
from everturn.execution.messages import RunLimits, Start
from executor.program import fork_program
program = fork_program(None)
os.kill(program.pid, signal.SIGKILL)
os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
program.begin(Start("r", "pass", (), RunLimits(), "n", (), 1))
"""

    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, check=False, timeout=50)

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_waiting_fork_ends_with_its_runner():
    script = "import os; from executor.program import fork_program; program = fork_program(None); print(program.pid)"

    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, check=False, timeout=50)

    assert done.stderr == b""
    descriptor = try_open(int(done.stdout))
    assert descriptor is None or wait(descriptor)


def try_open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def wait(descriptor: int) -> bool:
    """Whether the process ends within half a minute."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(30_000))
