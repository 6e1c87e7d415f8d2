"""The gateway without a sandbox: what only its own side can see; what programs do to it is tried on the real one."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from everturn.execution.framing import FrameDecoder, FrameStream
from everturn.execution.messages import Capability, GatewayCall, Hello, ToolGrant, ToolReply, Welcome
from everturn.execution.records import build_message
from exec_supervisor.supervisor.gateway import MAX_CONNECTIONS, Gateway
from exec_supervisor.supervisor.listeners import open_listener

CAPABILITY = Capability((ToolGrant("a.b", timeout_s=0.2),))


async def echo(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, True, call.arguments)


@contextlib.asynccontextmanager
async def serve(path, forward=echo, uid=None, frame_timeout_s=5.0):
    peer_uid = os.geteuid() if uid is None else uid
    gateway = Gateway(CAPABILITY, "nonce", peer_uid, forward, frame_timeout_s=frame_timeout_s)
    serving = asyncio.create_task(gateway.run(open_listener(Path(path), mode=0o600)))
    try:
        yield gateway
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


async def connect(path) -> FrameStream:
    reader, writer = await asyncio.open_unix_connection(path)
    return FrameStream(reader, writer, FrameDecoder())


async def greet(path) -> FrameStream:
    stream = await connect(path)
    await stream.send(build_message(Hello("nonce")))
    assert await stream.receive() == build_message(Welcome())
    return stream


async def is_welcome(path) -> bool:
    """Whether there is room for one more."""
    stream = await connect(path)
    try:
        await stream.send(build_message(Hello("nonce")))
        return await stream.receive() == build_message(Welcome())
    except ConnectionError:
        return False


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "s")


async def is_closed(stream: FrameStream) -> bool:
    try:
        return await asyncio.wait_for(stream.receive(), 5) is None
    except ConnectionError:
        return True


async def test_another_user_is_turned_away(path):
    async with serve(path, uid=os.geteuid() + 1) as gateway:
        stream = await connect(path)

        assert await is_closed(stream)
        assert gateway.refusals == {"wrong_uid": 1}


async def test_the_socket_is_open_to_its_user_only(path):
    async with serve(path):
        assert os.stat(path).st_mode & 0o777 == 0o600


async def test_excess_connections_are_closed_until_there_is_room(path):
    async with serve(path) as gateway:
        streams = [await greet(path) for _ in range(MAX_CONNECTIONS)]

        assert await is_closed(await connect(path))
        assert gateway.refusals == {"too_many_connections": 1}

        for stream in streams:
            stream._writer.close()
        async with asyncio.timeout(10):
            while not await is_welcome(path):  # noqa: ASYNC110 - only an attempt shows whether there is room
                await asyncio.sleep(0.01)


async def test_a_tool_that_takes_too_long_is_answered_for(path):
    async def forever(call: GatewayCall) -> ToolReply:
        await asyncio.Event().wait()
        raise AssertionError

    async with serve(path, forever) as gateway:
        stream = await greet(path)
        await stream.send(build_message(GatewayCall(5, "a.b", {})))

        reply = await asyncio.wait_for(stream.receive(), 5)

        assert (reply["id"], reply["ok"], reply["error_code"]) == (5, False, "timeout")
        assert [record.error_code for record in gateway.records] == ["timeout"]


async def test_the_worker_sees_numbers_of_the_run_and_the_program_its_own(path):
    seen: list[int] = []

    async def note(call: GatewayCall) -> ToolReply:
        seen.append(call.id)
        return ToolReply(call.id, True)

    async with serve(path, note):
        stream = await greet(path)
        for number in (70, 71):
            await stream.send(build_message(GatewayCall(number, "a.b", {})))
            assert (await stream.receive())["id"] == number

    assert seen == [1, 2]


async def test_a_program_that_does_not_read_its_answers_loses_its_connection(path):
    async def large(call: GatewayCall) -> ToolReply:
        return ToolReply(call.id, True, "x" * 900_000)

    async with serve(path, large, frame_timeout_s=0.3) as gateway:
        stream = await greet(path)
        stream._reader._transport.pause_reading()
        for number in range(4):
            await stream.send(build_message(GatewayCall(number, "a.b", {})))

        async with asyncio.timeout(5):
            while not gateway.refusals:  # noqa: ASYNC110 - a counter has no event
                await asyncio.sleep(0.02)

        assert gateway.refusals == {"too_slow": 1}
