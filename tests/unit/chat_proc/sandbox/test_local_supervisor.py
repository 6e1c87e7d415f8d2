"""A supervisor as a process: it boots or says why not. What it does when cancelled is in test_supervised."""

import sys

import pytest

from chat_proc.sandbox.local_supervisor import open_supervisor, read_ready
from chat_proc.sandbox.supervised import SupervisorFailed
from everturn.execution.messages import Boot, Finished, Hello, Interpreter, Posture, Ready, RunLimits, UidRange
from everturn.execution.records import BadMessage, build_message

BOOT = Boot(RunLimits(), Interpreter("/python", ()), "/bwrap", "/run/x", UidRange(20_000, 20_999))
POSTURE = Posture("l", "r", 1, "u", "n", "m", "p", "d", "s")


def test_the_first_frame_has_the_posture():
    assert read_ready(build_message(Ready(POSTURE))) == POSTURE


def test_a_supervisor_that_could_not_boot_says_why():
    with pytest.raises(SupervisorFailed, match="no namespaces"):
        read_ready(build_message(Finished("not_started", "no namespaces", 0, None)))


def test_anything_else_is_no_first_frame():
    with pytest.raises(BadMessage):
        read_ready(build_message(Hello("n")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys; sys.exit('the reason')", "the reason"),
        ("pass", "ended before it was ready"),
        ("import os, sys; os.write(1, b'\\0\\0\\0\\1x'); sys.stdin.read()", "invalid frame"),
    ],
)
async def test_one_that_does_not_boot_is_a_failure_with_its_reason(text, message):
    with pytest.raises(SupervisorFailed, match=message):
        async with open_supervisor([sys.executable, "-c", text], BOOT):
            pass
