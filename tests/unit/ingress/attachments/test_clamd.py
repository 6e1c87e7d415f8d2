"""The client of clamd against a fake server of its protocol."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing

import pytest

from everturn.core.errors import Invalid, Unavailable
from ingress.attachments.antivirus import SCANS, Clamd, parse_address, send_command

Address = tuple[str, int]
Serve = Callable[..., "asyncio.Future[Address]"]


class Peer:
    """Answers one command with `reply` and hangs up; `received` is the stream that came behind the command."""

    def __init__(self, reply: bytes, *, reads: bool) -> None:
        self.reply = reply
        self.reads = reads
        self.received = bytearray()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        command = await reader.readuntil(b"\n")
        while self.reads and b"INSTREAM" in command and (size := int.from_bytes(await reader.readexactly(4))):
            self.received += await reader.readexactly(size)
        writer.write(self.reply)
        await writer.drain()
        writer.close()


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., object]]:
    async with AsyncExitStack() as stack:

        async def start(reply: bytes, *, reads: bool = True) -> tuple[Peer, Address]:
            peer = Peer(reply, reads=reads)
            server = await asyncio.start_server(peer.answer, "127.0.0.1", 0)
            await stack.enter_async_context(server)
            return peer, server.sockets[0].getsockname()

        yield start


@pytest.mark.parametrize(
    "url",
    [
        "http://x",
        "tcp://",
        "tcp://host",
        "tcp://host:99999",
        "tcp://host:a",
        "tcp://[x:1",
        "unix://host/x",
        "unix:",
        "/run/clamd",
        "",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="CLAMD_URL"):
        parse_address(url)


def test_addresses_are_read() -> None:
    assert parse_address("tcp://127.0.0.1:3310") == ("127.0.0.1", 3310)
    assert parse_address("unix:///run/clamd.ctl") == "/run/clamd.ctl"


async def test_a_stream_arrives_whole(serve: Callable[..., object]) -> None:
    peer, address = await serve(b"stream: OK\n")  # type: ignore[misc]
    data = bytes(range(256)) * 4_000

    assert await send_command(address, "INSTREAM", timeout_s=20, stream=data) == "stream: OK"
    assert peer.received == data


async def test_a_reply_in_the_middle_of_the_stream_is_heard(serve: Callable[..., object]) -> None:
    _, address = await serve(b"INSTREAM size limit exceeded. ERROR\n", reads=False)  # type: ignore[misc]

    said = await send_command(address, "INSTREAM", timeout_s=20, stream=b"x" * 1000)

    assert "size limit exceeded" in said


@pytest.mark.parametrize("reply", [b"", b"stream: OK", b"x" * 10_000])
async def test_a_reply_without_an_end_is_none(serve: Callable[..., object], reply: bytes) -> None:
    _, address = await serve(reply)  # type: ignore[misc]

    with pytest.raises(Unavailable):
        await send_command(address, "INSTREAM", timeout_s=20, stream=b"x")


async def test_an_unreachable_server_is_no_answer() -> None:
    for address in (("127.0.0.1", 9), "/nowhere/clamd"):
        with pytest.raises(Unavailable):
            await send_command(address, "PING", timeout_s=20)


class SilentPeer:
    """Accepts connections and answers nothing until it may."""

    def __init__(self) -> None:
        self.connected: asyncio.Queue[None] = asyncio.Queue()
        self.may_end = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected.put_nowait(None)
        await self.may_end.wait()
        writer.close()


async def test_scans_that_last_leave_the_threads_of_other_work_free() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    peer = SilentPeer()
    async with await asyncio.start_server(peer.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with closing(Clamd(f"tcp://127.0.0.1:{port}")) as clamd:
            scans = [asyncio.create_task(clamd.scan(b"x", f"person-{n}")) for n in range(SCANS)]
            for _ in scans:
                await peer.connected.get()

            hashed = await asyncio.wait_for(asyncio.to_thread(hash, "x"), 10)

            assert hashed == hash("x")
            assert not any(scan.done() for scan in scans)
            peer.may_end.set()
            for scan in scans:
                with pytest.raises(Unavailable):
                    await scan


async def test_an_address_of_ip_version_6_is_reached() -> None:
    peer = Peer(b"PONG\n", reads=True)
    async with await asyncio.start_server(peer.answer, "::1", 0) as server:
        port = server.sockets[0].getsockname()[1]

        assert await send_command(("::1", port), "PING", timeout_s=5) == "PONG"
