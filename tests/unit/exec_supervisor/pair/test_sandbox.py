"""The sandbox of a pair on real sockets: who can connect as the executor, and how its end is detected."""

import asyncio
import contextlib
import os
import socket
import stat
from pathlib import Path

import pytest

from everturn.execution.framing import FrameError, encode_frame
from everturn.execution.messages import Booted, RunLimits
from everturn.execution.records import build_message
from exec_supervisor.pair import build_posture, open_sandbox

UID = os.geteuid()
GROUP = os.getegid()


async def connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(FileNotFoundError):
                return await asyncio.open_unix_connection(str(path))
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def open_both(folder: Path):
    """A sandbox, and the executor's end of its line."""
    connecting = asyncio.create_task(connect(folder / "line.sock"))
    async with open_sandbox(folder, build_posture(UID), GROUP) as sandbox:
        yield sandbox, *(await connecting)


async def test_the_line_socket_is_accepted_once_and_removed(tmp_path):
    async with open_both(tmp_path) as (sandbox, _, writer):
        there = [path.name for path in tmp_path.iterdir()]
        writer.write(encode_frame(build_message(Booted("cpython 3.11"))))

        assert there == ["gateway.sock"]
        assert await sandbox.line.receive() == build_message(Booted("cpython 3.11"))
        assert stat.S_IMODE((tmp_path / "gateway.sock").stat().st_mode) == 0o660
        assert sandbox.listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1

    assert list(tmp_path.iterdir()) == []


async def test_another_user_does_not_get_the_line(tmp_path):
    async def open_for_another() -> None:
        async with open_sandbox(tmp_path, build_posture(UID + 1), GROUP):
            pytest.fail("somebody else was taken for the executor")

    opening = asyncio.create_task(open_for_another())
    reader, _ = await connect(tmp_path / "line.sock")

    assert await reader.read(1) == b""
    assert not opening.done()
    opening.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await opening
    assert list(tmp_path.iterdir()) == []


async def test_connections_of_strangers_are_bounded(tmp_path):
    async def open_for_another() -> None:
        async with open_sandbox(tmp_path, build_posture(UID + 1), GROUP):
            pytest.fail("somebody else was taken for the executor")

    opening = asyncio.create_task(open_for_another())
    for _ in range(16):
        reader, _ = await connect(tmp_path / "line.sock")
        assert await reader.read(1) == b""

    with pytest.raises(ConnectionRefusedError):
        await opening


async def test_its_end_waits_until_the_executor_has_hung_up_too(tmp_path):
    async with open_both(tmp_path) as (sandbox, reader, writer):
        hung_up = asyncio.Event()

        async def end_late() -> None:
            assert await reader.read(1) == b""
            writer.write(b"one word more")
            hung_up.set()
            writer.close()

        late = asyncio.create_task(end_late())

        await sandbox.end()

        assert hung_up.is_set()
        await late


async def test_its_end_does_not_disturb_listeners(tmp_path):
    async with open_both(tmp_path) as (sandbox, reader, writer):
        listening = asyncio.create_task(sandbox.line.receive())
        ending = asyncio.create_task(sandbox.end())
        assert await reader.read(1) == b""
        writer.write(encode_frame(build_message(Booted("late"))))
        writer.close()

        assert await listening == build_message(Booted("late"))
        await ending


async def test_an_executor_that_stays_is_disconnected(tmp_path):
    async with open_both(tmp_path) as (sandbox, reader, writer):
        await sandbox.end()
        await sandbox.end()

        assert await reader.read(1) == b""
        with pytest.raises(ConnectionError):
            while True:
                writer.write(b"x")
                await writer.drain()


async def test_an_oversized_frame_is_not_read(tmp_path):
    async with open_both(tmp_path) as (sandbox, _, writer):
        writer.write((8 << 20).to_bytes(4, "big"))

        with pytest.raises(FrameError, match="too_large"):
            await sandbox.line.receive()


async def test_limits_that_only_the_engine_sees_are_not_reported(tmp_path):
    async with open_both(tmp_path) as (sandbox, *_):
        assert (sandbox.is_over_memory(RunLimits(memory_bytes=1)), sandbox.load_hits()) == (False, ())
        assert await sandbox.read_errors() == ""
        assert sandbox.posture == build_posture(UID)
