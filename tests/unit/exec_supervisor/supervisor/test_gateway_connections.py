"""Hostile connections over a real socket: each closes its own connection only."""

import asyncio
import contextlib
import json
import os
import selectors
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.execution.framing import FrameDecoder, FrameStream, encode_frame, encode_raw
from everturn.execution.messages import (
    GATEWAY_FRAME_BYTES,
    ArgumentRule,
    Capability,
    GatewayCall,
    Hello,
    Launch,
    ToolGrant,
    ToolReply,
    Welcome,
    hash_arguments,
)
from everturn.execution.records import build_message, parse_message
from exec_supervisor.supervisor.gateway import (
    MAX_ACCEPTED,
    MAX_IN_FLIGHT,
    MAX_REFUSED_CALLS,
    Gateway,
)
from exec_supervisor.supervisor.listeners import open_listener

NONCE = "the run's nonce"
CAPABILITY = Capability((ToolGrant("a.b"), ToolGrant("a.short", (ArgumentRule("q", max_chars=3),))), max_calls=1000)
HELLO = encode_frame(build_message(Hello(NONCE)))
FASTER = 40


class HurriedSelector(selectors.DefaultSelector):
    """Waits a fraction of the time."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(timeout / FASTER if timeout else timeout)


class HurriedLoop(asyncio.SelectorEventLoop):
    """A loop on which seconds pass faster, for limits of several seconds on real sockets."""

    def __init__(self) -> None:
        super().__init__(HurriedSelector())

    def time(self) -> float:
        return super().time() * FASTER


async def echo(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, True, call.arguments)


@contextlib.asynccontextmanager
async def serve(
    path: Path,
    forward: Callable[[GatewayCall], Awaitable[ToolReply]] = echo,
    capability: Capability = CAPABILITY,
) -> AsyncIterator[Gateway]:
    """A gateway; one that has failed by the end fails the test."""
    gateway = Gateway(capability, NONCE, os.geteuid(), forward)
    serving = asyncio.create_task(gateway.run(open_listener(path, mode=0o600)))
    try:
        yield gateway
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


class Program:
    """What a program can do with its end of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.stream = FrameStream(reader, writer, FrameDecoder(GATEWAY_FRAME_BYTES))

    @classmethod
    async def connect(cls, path: Path) -> "Program":
        return cls(*await asyncio.open_unix_connection(path))

    @classmethod
    async def greeted(cls, path: Path) -> "Program":
        program = await cls.connect(path)
        program.writer.write(HELLO)
        parse_message(await program.stream.receive(), Welcome)
        return program

    async def ask(self, number: int, tool_id: str = "a.b", **arguments: object) -> ToolReply:
        await self.stream.send(build_message(GatewayCall(number, tool_id, arguments)))
        return parse_message(await self.stream.receive(), ToolReply)

    async def is_closed(self) -> bool:
        """Whether the gateway closes the connection; waits for it to do so."""
        async with asyncio.timeout(30):
            try:
                while await self.stream.receive() is not None:
                    pass
            except ConnectionError:
                return True
            return True


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "s"


NONSENSE = {
    "a 100 MB frame": (struct.pack(">I", 100 << 20), "too_large"),
    "one byte too many": (struct.pack(">I", GATEWAY_FRAME_BYTES + 1), "too_large"),
    "raw bytes": (encode_raw(b"tar"), "raw_not_allowed"),
    "no JSON": (struct.pack(">I", 3) + b"{x}", "not_json"),
    "no UTF-8": (struct.pack(">I", 2) + b"\xff\xfe", "not_json"),
    "a list": (struct.pack(">I", 2) + b"[]", "not_an_object"),
    "an empty object": (struct.pack(">I", 2) + b"{}", "bad_message"),
    "an empty frame": (struct.pack(">I", 0), "not_json"),
    "a launch": (encode_frame({"kind": Launch.kind}), "bad_message"),
    "a reply": (encode_frame(build_message(ToolReply(1, True))), "bad_message"),
    "a call without arguments": (encode_frame({"kind": "call", "id": 1, "tool_id": "a.b"}), "bad_message"),
    "a call with a further field": (
        encode_frame({"kind": "call", "id": 1, "tool_id": "a.b", "arguments": {}, "uid": 0}),
        "bad_message",
    ),
    "deep nesting": (struct.pack(">I", 2000) + b"[" * 2000, "not_json too_deep"),
}


@pytest.mark.parametrize(("data", "code"), NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("greeting", [b"", HELLO], ids=["instead of hello", "instead of a call"])
async def test_an_invalid_frame_closes_only_its_connection(path, greeting, data, code):
    async with serve(path) as gateway:
        good, bad = await Program.greeted(path), await Program.connect(path)

        bad.writer.write(greeting + data)

        assert await bad.is_closed()
        assert set(gateway.refusals) <= set(code.split())
        assert gateway.refusals.total() == 1
        assert (await good.ask(1, x=1)).value == {"x": 1}


@pytest.mark.parametrize("nonce", ["", "another run's nonce", NONCE + "\0", "ü", "\ud800", "x" * 100_000])
async def test_a_wrong_nonce_closes_only_its_connection(path, nonce):
    async with serve(path) as gateway:
        good, bad = await Program.greeted(path), await Program.connect(path)

        bad.writer.write(encode_frame({"kind": "hello", "nonce": nonce}))

        assert await bad.is_closed()
        assert gateway.refusals.total() == 1
        assert (await good.ask(1)).ok


async def test_a_call_before_the_hello_is_not_served(path):
    async with serve(path) as gateway:
        bad = await Program.connect(path)

        bad.writer.write(encode_frame(build_message(GatewayCall(1, "a.b", {}))))

        assert await bad.is_closed()
        assert gateway.records == []


async def test_a_second_hello_closes_the_connection(path):
    async with serve(path) as gateway:
        bad = await Program.greeted(path)

        bad.writer.write(HELLO)

        assert await bad.is_closed()
        assert gateway.refusals == {"bad_message": 1}


def test_silent_half_open_and_unfinished_connections_are_closed_in_time(path):
    async def watch() -> dict[str, int]:
        async with serve(path) as gateway:
            patient = await Program.greeted(path)
            silent, half_hello = await Program.connect(path), await Program.connect(path)
            half_hello.writer.write(HELLO[:7])
            half_call = await Program.greeted(path)
            half_call.writer.write(struct.pack(">I", 1000) + b"{")

            assert await silent.is_closed()
            assert await half_hello.is_closed()
            assert await half_call.is_closed()
            assert (await patient.ask(1)).ok, "silence between calls is allowed"
            return dict(gateway.refusals)

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        assert runner.run(watch()) == {"too_slow": 3}


async def test_a_half_closed_connection_still_gets_its_replies(path):
    release = asyncio.Event()

    async def late(call: GatewayCall) -> ToolReply:
        await release.wait()
        return ToolReply(call.id, True, "late")

    async with serve(path, late):
        program = await Program.greeted(path)
        await program.stream.send(build_message(GatewayCall(1, "a.b", {})))
        program.writer.write_eof()
        release.set()

        assert parse_message(await program.stream.receive(), ToolReply).value == "late"
        assert await program.is_closed()


async def test_a_program_that_leaves_in_the_middle_of_a_call_disturbs_nobody(path):
    called, release = asyncio.Event(), asyncio.Event()

    async def late(call: GatewayCall) -> ToolReply:
        if call.arguments:
            called.set()
            await release.wait()
        return ToolReply(call.id, True)

    async with serve(path, late):
        leaving, staying = await Program.greeted(path), await Program.greeted(path)
        await leaving.stream.send(build_message(GatewayCall(1, "a.b", {"wait": True})))
        await called.wait()

        leaving.writer.transport.abort()
        release.set()

        assert (await staying.ask(1)).ok


async def test_only_so_many_calls_of_a_connection_wait_for_the_worker_at_once(path):
    waiting = 0
    most = 0
    full, release = asyncio.Event(), asyncio.Event()

    async def count(call: GatewayCall) -> ToolReply:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        if waiting == MAX_IN_FLIGHT:
            full.set()
        await release.wait()
        waiting -= 1
        return ToolReply(call.id, True)

    async with serve(path, count):
        program = await Program.greeted(path)
        for number in range(3 * MAX_IN_FLIGHT):
            program.writer.write(encode_frame(build_message(GatewayCall(number, "a.b", {}))))
        await full.wait()
        release.set()
        numbers = {parse_message(await program.stream.receive(), ToolReply).id for _ in range(3 * MAX_IN_FLIGHT)}

    assert numbers == set(range(3 * MAX_IN_FLIGHT))
    assert most == MAX_IN_FLIGHT


async def test_too_many_refused_calls_close_the_connection(path):
    async with serve(path) as gateway:
        program = await Program.greeted(path)
        refused = encode_frame(build_message(GatewayCall(1, "a.private", {})))

        program.writer.write(refused * 10_000)

        assert await program.is_closed()
        assert gateway.refusals == {"not_allowed": MAX_REFUSED_CALLS, "too_many_refused_calls": 1}
        assert gateway.records == []


async def test_the_calls_of_all_connections_count_together(path):
    async with serve(path, capability=Capability((ToolGrant("a.b"),), max_calls=2)):
        first, second = await Program.greeted(path), await Program.greeted(path)

        codes = [(await program.ask(1)).error_code for program in (first, second, first, second)]

    assert codes == ["", "", "quota_calls", "quota_calls"]


async def test_replies_count_towards_the_byte_quota(path):
    async def large(call: GatewayCall) -> ToolReply:
        return ToolReply(call.id, True, "secret" * 500)

    async with serve(path, large, Capability((ToolGrant("a.b"),), max_bytes=2000)) as gateway:
        reply = await (await Program.greeted(path)).ask(1)

    assert (reply.ok, reply.value, reply.error_code) == (False, None, "quota_bytes")
    assert [record.ok for record in gateway.records] == [False]


async def test_arguments_that_break_their_rule_never_reach_the_worker(path):
    seen: list[GatewayCall] = []

    async def note(call: GatewayCall) -> ToolReply:
        seen.append(call)
        return ToolReply(call.id, True)

    async with serve(path, note) as gateway:
        program = await Program.greeted(path)
        codes = [(await program.ask(n, "a.short", q=q)).error_code for n, q in enumerate(["abc", "abcd", ["a"], None])]

    assert codes == ["", *["bad_arguments"] * 3]
    assert [call.arguments for call in seen] == [{"q": "abc"}]
    assert gateway.refusals == {"bad_arguments": 3}


async def test_the_record_of_a_call_has_its_hash_and_bytes(path):
    async with serve(path) as gateway:
        await (await Program.greeted(path)).ask(9, x="1", raw=b"\xff")

    [record] = gateway.records
    assert (record.id, record.tool_id, record.ok, record.error_code) == (1, "a.b", True, "")
    assert record.arguments_sha256 == hash_arguments({"raw": b"\xff", "x": "1"})
    assert record.bytes > 100


def connect_often(path: Path) -> None:
    for _ in range(MAX_ACCEPTED + 50):
        with socket.socket(socket.AF_UNIX) as flood:
            flood.connect(str(path))


async def test_a_flood_of_connections_ends_the_listener_and_not_the_session(path):
    async with serve(path) as gateway:
        good = await Program.greeted(path)

        with pytest.raises(ConnectionRefusedError):
            await asyncio.to_thread(connect_often, path)

        assert (await good.ask(1)).ok
        assert gateway.refusals["too_many_connections"] >= 1


@settings(deadline=None, max_examples=30)
@given(st.lists(st.binary(max_size=60), max_size=5), st.booleans())
def test_no_bytes_end_the_gateway(tmp_path_factory, pieces, greeted):
    path = tmp_path_factory.mktemp("gateway") / "s"

    async def abuse() -> bool:
        async with serve(path):
            bad = await Program.connect(path)
            bad.writer.write((HELLO if greeted else b"") + b"".join(pieces))
            bad.writer.write_eof()
            await bad.is_closed()
            return (await (await Program.greeted(path)).ask(1)).ok

    assert asyncio.run(abuse())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@settings(deadline=None, max_examples=40)
@given(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["hello", "call"])},
        optional={
            "nonce": st.text(st.characters(), max_size=5) | JSON,
            "id": st.integers() | JSON,
            "tool_id": st.sampled_from(["a.b", "a.c", "\ud800"]) | JSON,
            "arguments": st.dictionaries(st.text(st.characters(), max_size=3), JSON, max_size=2) | JSON,
        },
    ),
    st.booleans(),
)
def test_no_message_ends_the_gateway(tmp_path_factory, message, greeted):
    path = tmp_path_factory.mktemp("gateway") / "s"

    async def abuse() -> bool:
        async with serve(path):
            bad = await Program.connect(path)
            body = json.dumps(message).encode()
            bad.writer.write((HELLO if greeted else b"") + struct.pack(">I", len(body)) + body)
            bad.writer.write_eof()
            await bad.is_closed()
            return (await (await Program.greeted(path)).ask(1)).ok

    assert asyncio.run(abuse())
