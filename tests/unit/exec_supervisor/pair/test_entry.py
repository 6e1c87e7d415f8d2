"""The supervisor of a pair as a process; a script replaces the container of the executor."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from chat_proc.sandbox.local_supervisor import read_ready
from chat_proc.sandbox.supervised import BootedSupervisor, SupervisedRun, SupervisorFailed, run_supervised
from everturn.execution.framing import FrameDecoder, FrameStream
from everturn.execution.messages import (
    PIPE_FRAME_BYTES,
    Booted,
    Capability,
    Finished,
    GatewayCall,
    Hello,
    Launch,
    LimitName,
    OutputsEnd,
    Report,
    RunLimits,
    Start,
    Stop,
    ToolGrant,
    ToolReply,
    Welcome,
)
from everturn.execution.records import MessageClass, build_message, parse_message

LIMITS = RunLimits(output_bytes=1000, output_files=1)
REPORT = Report(0, None, None, "out", "", 3, 0)


@dataclass
class Line:
    """An end of a socket that speaks frames."""

    stream: FrameStream
    writer: asyncio.StreamWriter

    @classmethod
    async def connect(cls, path: Path) -> "Line":
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(FileNotFoundError):
                    reader, writer = await asyncio.open_unix_connection(str(path))
                    return cls(FrameStream(reader, writer, FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True)), writer)
                await asyncio.sleep(0.005)

    async def say(self, *messages: MessageClass) -> None:
        for message in messages:
            await self.stream.send(build_message(message), PIPE_FRAME_BYTES)

    async def hear(self, kind: type[MessageClass]) -> MessageClass | None:
        """The next message; None at the end."""
        frame = await self.stream.receive()
        return parse_message(frame, kind) if isinstance(frame, dict) else None

    async def take_start(self) -> Start:
        """The message that the executor receives once its inputs are read."""
        start = await self.hear(Start)
        while isinstance(await self.stream.receive(), bytes):
            pass
        assert isinstance(start, Start)
        return start


Executor = Callable[[Line, Path], Awaitable[None]]


async def end_well(line: Line, folder: Path) -> None:
    await line.say(Booted("cpython 3.11"))
    await line.take_start()
    await line.say(REPORT)
    await line.stream.send_raw(b"tar")
    await line.say(OutputsEnd())


async def echo(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, True, call.arguments)


async def see_no_hits(finished: Finished) -> tuple[LimitName, ...]:
    return ()


def build_command(folder: Path) -> list[str]:
    chosen = ["--folder", str(folder), "--executor-uid", str(os.geteuid())]
    return [sys.executable, "-I", "-m", "exec_supervisor", "pair", *chosen]


@contextlib.asynccontextmanager
async def start(folder: Path, executor: Executor) -> AsyncIterator[asyncio.subprocess.Process]:
    """A supervisor process and a scripted executor; both have ended, and left nothing, when the block is left."""
    process = await asyncio.create_subprocess_exec(
        *build_command(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )

    async def play() -> None:
        line = await Line.connect(folder / "line.sock")
        await executor(line, folder)
        line.writer.close()

    playing = asyncio.create_task(play())
    try:
        yield process
    finally:
        process.stdin.close()
        async with asyncio.timeout(30):
            await process.wait()
            await playing
        assert not os.listdir(folder), "the supervisor left its sockets"


async def read_boot(process: asyncio.subprocess.Process) -> BootedSupervisor:
    stream = FrameStream(process.stdout, process.stdin, FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True))
    async with asyncio.timeout(30):
        frame = await stream.receive()
    posture = read_ready(frame if isinstance(frame, dict) else {})
    return BootedSupervisor(stream, posture, LIMITS, process.stderr.read, see_no_hits, lambda: True)


async def see_through(
    folder: Path, executor: Executor, stop: asyncio.Event | None = None, timeout_s: float = 30.0
) -> SupervisedRun:
    launch = Launch("run", "pass", ("a",), timeout_s, LIMITS, Capability((ToolGrant("a.b"),)), "nonce")
    async with start(folder, executor) as process:
        return await run_supervised(await read_boot(process), launch, [b"tar"], echo, stop or asyncio.Event())


async def test_it_reports_ready_and_completes_a_run(tmp_path):
    done = await see_through(tmp_path, end_well)

    assert (done.finished.verdict, done.finished.report, done.tar) == ("ended", REPORT, b"tar")
    assert (done.finished.posture.launcher, done.finished.posture.runtime) == ("containers", "cpython 3.11")


async def test_a_program_calls_tools_through_the_socket_beside_the_line(tmp_path):
    heard: list[object] = []

    async def call_tools(line: Line, folder: Path) -> None:
        await line.say(Booted("cpython 3.11"))
        start = await line.take_start()
        stranger, program = [await Line.connect(folder / "gateway.sock") for _ in range(2)]
        await stranger.say(Hello("another run's"))
        heard.append(await stranger.hear(Welcome))
        await program.say(Hello(start.nonce), GatewayCall(7, "a.b", {"x": 1}))
        heard.extend([await program.hear(Welcome), await program.hear(ToolReply)])
        heard.append((folder / "line.sock").exists())
        for peer in (stranger, program):
            peer.writer.close()
        await line.say(REPORT, OutputsEnd())

    done = await see_through(tmp_path, call_tools)

    assert heard == [None, Welcome(), ToolReply(7, True, {"x": 1}), False]
    assert done.finished.refusals == {"wrong_nonce": 1}
    assert [record.tool_id for record in done.finished.calls] == ["a.b"]


async def test_a_stop_reaches_the_executor_and_its_files_are_kept(tmp_path):
    stop = asyncio.Event()

    async def stop_on_request(line: Line, folder: Path) -> None:
        await line.say(Booted("cpython 3.11"))
        await line.take_start()
        stop.set()
        assert await line.hear(Stop) == Stop("cancelled")
        await line.say(REPORT)
        await line.stream.send_raw(b"kept")
        await line.say(OutputsEnd())

    done = await see_through(tmp_path, stop_on_request, stop)

    assert (done.finished.verdict, done.tar, done.finished.limits) == ("cancelled", b"kept", ())


async def test_a_silent_executor_is_disconnected_at_the_limit(tmp_path):
    async def be_silent(line: Line, folder: Path) -> None:
        await line.say(Booted("cpython 3.11"))
        await line.take_start()
        while await line.stream.receive() is not None:
            pass

    done = await see_through(tmp_path, be_silent, timeout_s=0.1)

    assert (done.finished.verdict, done.finished.report, done.finished.limits) == ("timeout", None, ("time",))


@pytest.mark.parametrize(
    ("failures", "reason"), [(("it runs as root",), "it runs as root"), ((), "the executor ended")]
)
async def test_an_unconfined_or_dead_executor_is_never_ready(tmp_path, failures, reason):
    async def fail(line: Line, folder: Path) -> None:
        if failures:
            await line.say(Booted("cpython 3.11", failures))

    async with start(tmp_path, fail) as process:
        with pytest.raises(SupervisorFailed, match=reason):
            await read_boot(process)


async def test_an_executor_that_dies_before_its_run_is_reported(tmp_path):
    async def boot_and_die(line: Line, folder: Path) -> None:
        await line.say(Booted("cpython 3.11"))

    async with start(tmp_path, boot_and_die) as process:
        booted = await read_boot(process)

        with pytest.raises(SupervisorFailed, match="the executor ended"):
            async with asyncio.timeout(30):
                read_ready(await booted.stream.receive() or {})


async def test_a_worker_that_hangs_up_ends_it_and_the_executors_line(tmp_path):
    ended = asyncio.Event()

    async def wait_for_the_end(line: Line, folder: Path) -> None:
        await line.say(Booted("cpython 3.11"))
        assert await line.stream.receive() is None
        ended.set()

    async with start(tmp_path, wait_for_the_end) as process:
        await read_boot(process)
        process.stdin.close()
        async with asyncio.timeout(30):
            assert await process.wait() == 1
            await ended.wait()


def test_a_worker_that_disconnects_before_boot_ends_it(tmp_path):
    done = subprocess.run(build_command(tmp_path), input=b"", capture_output=True, check=False, timeout=50)

    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
    assert not list(tmp_path.iterdir())
