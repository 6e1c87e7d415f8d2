"""A supervisor against executors that lie: a script takes bubblewrap's place and says what no honest one would."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chat_proc.sandbox.client import SupervisedRun, run_supervised
from everturn.wire.execution import (
    Booted,
    Capability,
    GatewayCall,
    Interpreter,
    Launch,
    OutputsEnd,
    Report,
    RunLimits,
    Stop,
    ToolReply,
    build_message,
)
from everturn.wire.framing import encode_frame, encode_raw

COMMAND = [sys.executable, "-I", "-m", "exec_supervisor"]
LIMITS = RunLimits(output_bytes=1000, output_files=1)


def say(message) -> bytes:
    return encode_frame(build_message(message))


BOOTED = say(Booted("lying 1.0"))
FINE = say(Report(0, None, None, "", "", 0, 0))
END = say(OutputsEnd())
STAY = "sleep 50"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the dropped user can read."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False)


async def run_liar(folder: Path, says: bytes, then: str = STAY, timeout_s: float = 5.0) -> SupervisedRun:
    (folder / "says").write_bytes(says)
    script = folder / "bwrap"
    script.write_text(f"#!/bin/sh\n/bin/cat {folder}/says\n{then}\n")
    script.chmod(0o755)
    launch = Launch(
        execution_id=f"liar-{os.getpid()}",
        program="pass",
        outputs=("a",),
        timeout_s=timeout_s,
        limits=LIMITS,
        capability=Capability(),
        nonce="n",
        interpreter=Interpreter("/python", ()),
        bwrap=str(script),
        run_dir=f"{folder}/run",
        sandbox_uid=1001,
    )
    return await run_supervised(COMMAND, launch, [b"inputs"], refuse, asyncio.Event())


async def test_an_honest_one_is_believed(folder):
    done = await run_liar(folder, BOOTED + FINE + encode_raw(b"tar") + END)

    assert (done.finished.verdict, done.finished.detail, done.tar) == ("ended", "", b"tar")
    assert done.finished.posture.runtime == "lying 1.0"


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (say(Booted("x", ("it runs as root",))), "not closed: it runs as root"),
        (b"\xff" * 100, "too_large"),
        (b"\0\0\0\2{}", "unexpected message"),
        (FINE, "unexpected message"),
        (encode_raw(b"x"), "raw bytes"),
    ],
)
async def test_one_that_does_not_boot_gets_no_program(folder, says, told):
    done = await run_liar(folder, says)

    assert done.finished.verdict == "not_started"
    assert told in done.finished.detail


async def test_one_that_ends_says_why_on_its_error_stream(folder):
    done = await run_liar(folder, b"", "echo no namespaces today >&2; exit 1")

    assert done.finished.verdict == "not_started"
    assert "no namespaces today" in done.finished.detail


@pytest.mark.parametrize(
    "says",
    [
        b"\xff" * 100,
        say(Stop("timeout")),
        encode_raw(b"x" * 60000) * 100,
        BOOTED,
        END,
        say(Report(0, None, None, "", "", 0, 0))[:-1],
    ],
)
async def test_one_that_says_something_else_than_a_report_has_died(folder, says):
    done = await run_liar(folder, BOOTED + says, "sleep 0.3")

    assert done.finished.verdict == "died"
    assert done.finished.report is None


async def test_one_that_stays_silent_is_killed_two_seconds_after_the_limit(folder):
    started = time.monotonic()

    done = await run_liar(folder, BOOTED, timeout_s=0.5)

    assert time.monotonic() - started < 0.5 + 2 + 1.5
    assert (done.finished.verdict, done.finished.limits) == ("timeout", ("time",))
    assert "its files are lost" in done.finished.detail


async def test_one_that_sends_more_than_may_leave_is_cut_off(folder):
    done = await run_liar(folder, BOOTED + FINE + encode_raw(b"x" * 60000) * 10 + END)

    assert done.finished.limits == ("output",)
    assert "cut off" in done.finished.detail
    assert len(done.tar) < 100_000


@pytest.mark.parametrize("says", [b"", b"\xff" * 9, BOOTED, encode_raw(b"tar")])
async def test_outputs_that_do_not_end_are_a_detail_and_no_hang(folder, says):
    done = await run_liar(folder, BOOTED + FINE + says, "sleep 0.3")

    assert done.finished.verdict == "ended"
    assert "cut off" in done.finished.detail


async def test_the_folder_of_the_run_is_gone(folder):
    await run_liar(folder, BOOTED + FINE + END)

    assert not (folder / "run").exists()
