"""A run with an executor that lies, floods or falls silent; a script replaces bubblewrap and everything inside it.

The supervisor is the real process. What counts is that its findings hold and that nothing of the run stays.
"""

import asyncio
import itertools
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from chat_proc.sandbox.local_supervisor import open_supervisor
from chat_proc.sandbox.supervised import SupervisedRun, SupervisorFailed, run_supervised
from everturn.execution.framing import FrameDecoder, FrameStream, encode_frame, encode_raw
from everturn.execution.messages import (
    Boot,
    Booted,
    Capability,
    Finished,
    GatewayCall,
    Hello,
    InputsEnd,
    Interpreter,
    Launch,
    OutputsEnd,
    Posture,
    ProgramError,
    Ready,
    Report,
    RunLimits,
    ToolReply,
    UidRange,
)
from everturn.execution.records import build_message, parse_message
from exec_supervisor.supervisor.run import run_supervisor
from exec_supervisor.supervisor.worker_line import WorkerLine

SUPERVISOR = [sys.executable, "-I", "-m", "exec_supervisor"]
BOOTED = Booted("cpython 3.11")
BOOTED_FRAME = encode_frame(build_message(BOOTED))
REPORT = Report(0, None, None, "out", "err", 3, 3)
# Both read on, so that nothing sent to them breaks a pipe.
STAY = "/bin/cat > /dev/null 2>&1"
HANG_UP = "exec /bin/cat > /dev/null"

Said = bytes | object


def say(*parts: Said) -> bytes:
    return b"".join(part if isinstance(part, bytes) else encode_frame(build_message(part)) for part in parts)


LIMITS = RunLimits(output_bytes=1000, output_files=1)
WAIT_FOR_START = "/usr/bin/head -c 1 > /dev/null"


@dataclass
class Harness:
    """Makes boots whose bubblewrap is a script, in a folder that the dropped user reaches.

    The script says `booted`, waits until it is spoken to, says `said` and goes on with `then`.
    """

    folder: Path
    numbers: Iterator[int]

    def boot(self, said: bytes, then: str = STAY, booted: bytes = BOOTED_FRAME) -> Boot:
        number = next(self.numbers)
        first, second = self.folder / f"booted{number}", self.folder / f"said{number}"
        first.write_bytes(booted)
        second.write_bytes(said)
        script = self.folder / f"bwrap{number}"
        wait = WAIT_FOR_START if booted == BOOTED_FRAME else ""
        script.write_text(f"#!/bin/sh\n/bin/cat {first}\n{wait}\n/bin/cat {second}\n{then}\n")
        for place, mode in ((first, 0o644), (second, 0o644), (script, 0o755)):
            place.chmod(mode)
        return Boot(
            LIMITS, Interpreter("/python", ()), str(script), str(self.folder / f"run{number}"), UidRange(20_000, 20_999)
        )


@pytest.fixture
def harness() -> Iterator[Harness]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Harness(Path(folder), itertools.count(1))
        assert not list(Path(folder).glob("run*")), "the supervisor left its run's folder"


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False, None, "not_allowed", "")


def build_launch(timeout_s: float = 20.0) -> Launch:
    return Launch(f"stand-in-{os.getpid()}", "pass", ("a",), timeout_s, LIMITS, Capability(), "n")


async def see_through(boot: Boot, stop: asyncio.Event | None = None, timeout_s: float = 20.0) -> SupervisedRun:
    async with open_supervisor(SUPERVISOR, boot) as booted:
        return await run_supervised(booted, build_launch(timeout_s), [b"tar"], refuse, stop or asyncio.Event())


async def test_a_run_that_keeps_the_protocol_ends_with_its_report_and_its_files(harness):
    said = say(REPORT, encode_raw(b"one"), encode_raw(b"two"), OutputsEnd())

    done = await see_through(harness.boot(said))

    assert (done.finished.verdict, done.finished.detail, done.finished.report) == ("ended", "", REPORT)
    assert done.finished.posture.runtime == "cpython 3.11"
    assert done.tar == b"onetwo"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", "the executor ended"),
        (say(Booted("cpython", ("it has a network device", "it runs as root"))), "it has a network device, it runs"),
        (say(REPORT), "unexpected message 'report'"),
        (say(Finished("ended", "", 1, None)), "unexpected message 'finished'"),
        (encode_raw(b"x"), "raw bytes"),
        (struct.pack(">I", 64 << 20), "too_large"),
        (struct.pack(">I", 3) + b"{x}", "not_json"),
        (say(BOOTED)[:-1], "the executor ended"),
    ],
    ids=["silence", "open walls", "report", "finished", "raw", "oversized", "no JSON", "half a frame"],
)
async def test_an_executor_that_boots_wrongly_runs_nothing(harness, said, reason):
    with pytest.raises(SupervisorFailed, match=reason):
        await see_through(harness.boot(b"", then=HANG_UP, booted=said))


@pytest.mark.parametrize(
    "said",
    [
        b"",
        say(BOOTED),
        say(Hello("n")),
        say(OutputsEnd()),
        say(Finished("ended", "", 1, None, REPORT)),
        encode_raw(b"x"),
        struct.pack(">I", 64 << 20),
        b"\xff" * 100,
        encode_frame({"kind": "report", "exit_code": 0}),
        encode_frame({**build_message(REPORT), "verdict": "ended"}),
        say(REPORT)[:-1],
    ],
    ids=[
        "silence",
        "booted again",
        "hello",
        "no report",
        "finished",
        "raw",
        "oversized",
        "noise",
        "fields missing",
        "fields added",
        "half a frame",
    ],
)
async def test_anything_but_a_report_is_the_executors_end(harness, said):
    done = await see_through(harness.boot(said, then=HANG_UP))

    assert (done.finished.verdict, done.finished.report, done.tar) == ("died", None, b"")


@pytest.mark.parametrize(
    "said",
    [b"", encode_raw(b"tar")[:-1], say(REPORT), say(encode_raw(b"tar"), Hello("n")), struct.pack(">I", 64 << 20)],
    ids=["silence", "half a frame", "second report", "hello", "oversized"],
)
async def test_incomplete_outputs_are_reported_and_the_verdict_is_kept(harness, said):
    done = await see_through(harness.boot(say(REPORT) + said, then=HANG_UP))

    assert (done.finished.verdict, done.finished.report) == ("ended", REPORT)
    assert "the output files are incomplete" in done.finished.detail


async def test_more_output_bytes_than_may_leave_are_cut_off_and_named(harness):
    flood = harness.folder / "flood"
    flood.write_bytes(say(*(encode_raw(b"x" * 50_000) for _ in range(20)), OutputsEnd()))
    flood.chmod(0o644)

    done = await see_through(harness.boot(say(REPORT), then=f"exec /bin/cat {flood}"))

    assert done.finished.limits == ("output",)
    assert "more bytes than may leave" in done.finished.detail
    assert len(done.tar) < 100_000


async def test_a_flood_of_errors_is_truncated_and_does_not_block(harness):
    late = harness.folder / "late"
    late.write_bytes(say(REPORT, OutputsEnd()))
    late.chmod(0o644)

    done = await see_through(
        harness.boot(b"", then=f"head -c 3000000 /dev/zero | tr '\\0' x >&2\n/bin/cat {late}\n{HANG_UP}")
    )

    assert done.finished.verdict == "ended"
    assert done.finished.detail == "x" * 4096


async def test_a_silent_executor_is_killed_two_seconds_after_the_limit(harness):
    started = time.monotonic()

    done = await see_through(harness.boot(b""), timeout_s=0.2)

    assert 2.0 < time.monotonic() - started < 2.2 * 3
    assert (done.finished.verdict, done.finished.report, done.finished.limits) == ("timeout", None, ("time",))
    assert 200 <= done.finished.duration_ms < 2_200 * 3


async def test_a_stop_that_is_not_obeyed_ends_the_run_too_and_is_no_limit(harness):
    stop = asyncio.Event()
    stop.set()

    done = await see_through(harness.boot(b""), stop)

    assert (done.finished.verdict, done.finished.report, done.finished.limits) == ("cancelled", None, ())


async def test_an_executors_report_does_not_change_the_verdict(harness):
    boast = replace(REPORT, exit_code=None, signal=9, error=ProgramError("E", "m", 1, "t"), limits=("memory", "cpu"))

    done = await see_through(harness.boot(say(boast, OutputsEnd())))

    assert (done.finished.verdict, done.finished.limits, done.finished.calls) == ("ended", (), ())
    assert done.finished.refusals == {}


def start_supervisor(boot: Boot) -> "subprocess.Popen[bytes]":
    """A supervisor that has reported ready, with inputs still open."""
    process = subprocess.Popen(SUPERVISOR, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(say(boot))
    process.stdin.flush()
    decoder = FrameDecoder(allow_raw=True)
    while not (frames := decoder.feed(os.read(process.stdout.fileno(), 65536))):
        assert process.poll() is None, process.stderr.read()
    parse_message(frames[0], Ready)
    return process


def is_running(mark: str) -> bool:
    """Whether a process has `mark` in its command line."""
    return any(mark in _load_command(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _load_command(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize("inputs_sent", [False, True])
def test_a_worker_that_hangs_up_ends_the_run_within_two_seconds(harness, inputs_sent):
    boot = harness.boot(b"", then=f"/usr/bin/tail -f {harness.folder}/said1")
    with start_supervisor(boot) as process:
        assert is_running(str(harness.folder))
        process.stdin.write(say(InputsEnd()) if inputs_sent else encode_raw(b"half"))
        started = time.monotonic()

        process.stdin.close()

        assert process.wait(20) == 1
        assert time.monotonic() - started < 2 * 3
    assert not is_running(str(harness.folder))


def test_a_terminated_supervisor_takes_the_run_with_it(harness):
    boot = harness.boot(b"")
    with start_supervisor(boot) as process:
        process.send_signal(signal.SIGTERM)

        assert process.wait(20) == 1
    assert not is_running(str(harness.folder))


def test_invalid_frames_from_the_worker_end_the_run(harness):
    boot = harness.boot(b"")
    with start_supervisor(boot) as process:
        process.stdin.write(b"\x00\x00\x00\x01x")
        process.stdin.flush()

        assert process.wait(20) != 0
    assert not is_running(str(harness.folder))


class EndedReader:
    """An executor that has ended."""

    async def read(self, n: int, /) -> bytes:
        return b""


class Written:
    """The other end of a line: what was written to it."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes, /) -> None:
        self.data += data

    async def drain(self) -> None:
        pass


class StubbornSandbox:
    """A sandbox whose processes do not end in time."""

    posture = Posture("l", "r", 1, "u", "n", "m", "p", "d", "s")

    def __init__(self) -> None:
        self.line = FrameStream(EndedReader(), Written(), FrameDecoder(1 << 20, allow_raw=True))

    async def read_errors(self) -> str:
        return "last words"

    async def end(self) -> None:
        raise TimeoutError("still running")


class LoudSandbox(StubbornSandbox):
    """What is left of it keeps stderr open."""

    async def read_errors(self) -> str:
        return await asyncio.get_running_loop().create_future()


async def supervise(sandbox: StubbornSandbox) -> Finished:
    worker = Written()
    line = WorkerLine(FrameStream(EndedReader(), worker, FrameDecoder(1 << 20, allow_raw=True)))
    lifeline, held_by_worker = os.pipe()

    @asynccontextmanager
    async def open_stubborn() -> AsyncIterator[Any]:
        yield sandbox
        raise OSError("the folder is in use")

    async with asyncio.timeout(10):
        exit_code = await run_supervisor(line, lifeline, open_stubborn)
    os.close(held_by_worker)
    os.close(lifeline)

    [frame] = FrameDecoder(1 << 20).feed(bytes(worker.data))
    assert exit_code == 0
    return parse_message(frame, Finished)


async def test_a_sandbox_that_cannot_be_ended_or_removed_is_part_of_the_result():
    finished = await supervise(StubbornSandbox())

    assert finished.posture == StubbornSandbox.posture
    assert [part.strip() for part in finished.detail.split(";")] == [
        "the executor ended",
        "the sandbox did not end: TimeoutError: still running",
        "last words",
        "OSError: the folder is in use",
    ]


async def test_a_result_does_not_wait_for_the_stderr_of_what_did_not_end():
    finished = await supervise(LoudSandbox())

    assert "still running; OSError" in finished.detail
