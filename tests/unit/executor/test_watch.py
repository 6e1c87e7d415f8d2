"""How the runner watches its children; whole programs, and that nothing of them is left, are tested in the sandbox."""

import os
import subprocess
import sys

import pytest

from everturn.execution.messages import MIB, RunLimits
from executor.watch import MAX_TAIL_CHARS, Children, Watch


def test_ended_children_are_reaped_and_the_exit_status_is_kept():
    script = """
import os, signal
from executor.watch import Children
read, write = os.pipe()
others = [os.fork() or os._exit(3) for _ in range(3)]
program = os.fork() or os._exit(5)
late = os.fork()
if late == 0:
    os.close(write)
    os.read(read, 1)
    os._exit(0)
children = Children(program)
while children.status is None:
    os.waitid(os.P_PID, program, os.WEXITED | os.WNOWAIT)
    left = children.take_note()
print(os.waitstatus_to_exitcode(children.status), left)
os.close(write)
os.waitid(os.P_PID, late, os.WEXITED | os.WNOWAIT)
print(children.take_note())
"""

    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False, timeout=50)

    assert (done.stdout, done.stderr) == ("5 True\nFalse\n", "")


def test_outside_of_a_sandbox_it_ends_nobody():
    assert os.getpid() != 1

    with pytest.raises(PermissionError, match="only the runner"):
        Children(0).end_all(0)


def test_kept_output_is_bounded_for_any_limits():
    watch = Watch(RunLimits(tail_chars=MIB))

    watch.stdout.add(b"x" * MIB)

    assert len(watch.stdout.data()) == 4 * MAX_TAIL_CHARS
    assert watch.ended().stdout.total_bytes == MIB
