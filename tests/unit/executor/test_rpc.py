"""The program's side of the gateway, against a small server that speaks its protocol."""

import asyncio
from pathlib import Path

import pytest

from everturn.execution.framing import FrameDecoder, FrameStream
from everturn.execution.messages import GatewayCall, Hello, ToolReply, Welcome
from everturn.execution.records import build_message, parse_message
from executor.rpc import Gateway, ToolError


class Server:
    """Answers in reverse order of arrival, two at a time, so that answers have to be matched."""

    def __init__(self) -> None:
        self.hellos: list[Hello] = []
        self.calls: list[GatewayCall] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = FrameStream(reader, writer, FrameDecoder())
        self.hellos.append(parse_message(await stream.receive(), Hello))
        await stream.send(build_message(Welcome()))
        while frames := [frame for frame in [await stream.receive(), await stream.receive()] if frame]:
            calls = [parse_message(frame, GatewayCall) for frame in frames]
            self.calls.extend(calls)
            for call in reversed(calls):
                await stream.send(build_message(self.reply(call)))
        writer.close()

    def reply(self, call: GatewayCall) -> ToolReply:
        if call.tool_id == "a.bad":
            return ToolReply(call.id, False, None, "not_allowed", "no")
        return ToolReply(call.id, True, call.arguments)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "s"


async def test_answers_find_their_calls_on_one_connection(path):
    server = Server()
    async with await asyncio.start_unix_server(server.serve, path):
        gateway = Gateway(str(path), "nonce")

        values = await asyncio.gather(*(gateway.call("a.b", {"n": n, "raw": b"\xff"}) for n in range(4)))

    assert [value["n"] for value in values] == [0, 1, 2, 3]
    assert server.hellos == [Hello("nonce")]


async def test_a_refusal_is_an_exception_with_its_code(path):
    async with await asyncio.start_unix_server(Server().serve, path):
        gateway = Gateway(str(path), "nonce")

        first, second = await asyncio.gather(gateway.call("a.bad", {}), gateway.call("a.b", {}), return_exceptions=True)

    assert isinstance(first, ToolError)
    assert (first.code, second) == ("not_allowed", {})


async def test_unsendable_arguments_are_refused_locally(path):
    async with await asyncio.start_unix_server(Server().serve, path):
        gateway = Gateway(str(path), "nonce")

        with pytest.raises(ToolError, match="bad_arguments"):
            await gateway.call("a.b", {"x": object()})
        with pytest.raises(ToolError, match="bad_arguments"):
            await gateway.call("a.b", {"x": "y" * (2 << 20)})


async def test_no_gateway_is_a_tool_error(path):
    with pytest.raises(ToolError, match="gateway"):
        await Gateway(str(path), "nonce").call("a.b", {})


async def test_calls_that_wait_when_the_gateway_closes_fail(path):
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = FrameStream(reader, writer, FrameDecoder())
        await stream.receive()
        await stream.send(build_message(Welcome()))
        await stream.receive()
        writer.close()

    async with await asyncio.start_unix_server(hang_up, path):
        with pytest.raises(ToolError, match="closed"):
            await asyncio.wait_for(Gateway(str(path), "nonce").call("a.b", {}), 5)


async def test_a_frame_that_is_no_answer_fails_the_calls_that_wait(path):
    closed = asyncio.Event()

    async def answer_badly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = FrameStream(reader, writer, FrameDecoder())
        await stream.receive()
        await stream.send(build_message(Welcome()))
        await stream.receive()
        await stream.send({"kind": "news"})
        assert await stream.receive() is None
        closed.set()
        writer.close()

    async with await asyncio.start_unix_server(answer_badly, path):
        with pytest.raises(ToolError, match="unexpected message 'news'"):
            await asyncio.wait_for(Gateway(str(path), "nonce").call("a.b", {}), 5)
        await asyncio.wait_for(closed.wait(), 5)


async def test_a_bad_greeting_is_a_tool_error_and_ends_the_connection(path):
    closed = asyncio.Event()

    async def greet_badly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = FrameStream(reader, writer, FrameDecoder())
        await stream.receive()
        await stream.send({"kind": "news"})
        assert await stream.receive() is None
        closed.set()
        writer.close()

    async with await asyncio.start_unix_server(greet_badly, path):
        with pytest.raises(ToolError, match="unexpected message 'news'"):
            await asyncio.wait_for(Gateway(str(path), "nonce").call("a.b", {}), 5)
        await asyncio.wait_for(closed.wait(), 5)


def test_a_second_event_loop_gets_a_connection_of_its_own(path):
    server = Server()

    async def twice(gateway: Gateway) -> None:
        async with await asyncio.start_unix_server(server.serve, path):
            await asyncio.gather(gateway.call("a.b", {}), gateway.call("a.b", {}))
        path.unlink(missing_ok=True)

    gateway = Gateway(str(path), "nonce")
    asyncio.run(twice(gateway))
    asyncio.run(twice(gateway))

    assert len(server.hellos) == 2
