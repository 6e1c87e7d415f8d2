"""The memory that the sockets of one user can occupy in a real ingress."""

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from helpers.waiting import wait_until

from ingress.stream.feed import LARGE_SNAPSHOTS_OF_PERSON as SLOTS

LIMIT_S = 30
CAP = 8_000_000
SOCKETS, EACH = 16, 6_000_000
REST = 500_000
"""So much more is below the cap where almost all of it is held; a message that is longer has no room."""
FIN, TEXT, BINARY = 0x80, 1, 2
TRIES, MESSAGES = 10, 5
HANDSHAKE = (
    "GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "X-Dev-User: {user}\r\n\r\n"
)


class Peer:
    """A WebSocket client that can begin a message and never end it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def join(cls, url: str, user: str) -> "Peer":
        parts = urlsplit(url)
        line = socket.socket()
        # What it does not read stays with the server.
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.setblocking(False)
        await asyncio.get_running_loop().sock_connect(line, (str(parts.hostname), parts.port or 80))
        peer = cls(*await asyncio.open_connection(sock=line))
        peer.writer.write(HANDSHAKE.format(user=user).encode())
        await peer.until(b"\r\n\r\n")
        await peer.until(b"pingInterval")
        await peer.send(FIN | TEXT, b"40")
        await peer.until(b"session_info")
        return peer

    async def __aenter__(self) -> "Peer":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def send(self, first: int, data: bytes) -> None:
        """A frame, masked with zeros."""
        count = len(data)
        short, long = struct.pack("!BB4x", first, 0x80 | min(count, 125)), struct.pack("!BBQ4x", first, 0xFF, count)
        self.writer.write((short if count < 126 else long) + data)
        await self.writer.drain()

    async def until(self, what: bytes) -> bytes:
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.readuntil(what)


@pytest.fixture(scope="module")
def bounded(start_ingress: Callable[..., Any]) -> Any:
    return start_ingress(BODIES_MAX_BYTES=str(4 * CAP), RATE_LIMITS_WRITES="off")


@pytest.fixture(scope="module")
def narrow(start_ingress: Callable[..., Any]) -> Any:
    return start_ingress({"streams_of_user": 1}, RATE_LIMITS_WRITES="off")


def load_resident_bytes(ingress: Any) -> int:
    lines = Path(f"/proc/{ingress.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024


def has_refused(ingress: Any, count: int) -> bool:
    numbers = httpx2.get(f"{ingress.url}/metrics", timeout=LIMIT_S).text
    line = next((line for line in numbers.splitlines() if 'reason="user_bodies"' in line), " 0")
    return float(line.rpartition(" ")[2]) >= count


async def test_the_sockets_of_one_user_share_what_all_its_requests_may_hold(bounded: Any) -> None:
    async with AsyncExitStack() as stack:
        ann = [await stack.enter_async_context(await Peer.join(bounded.url, "ann")) for _ in range(SOCKETS)]
        ben = await stack.enter_async_context(await Peer.join(bounded.url, "ben"))
        before = load_resident_bytes(bounded)
        for peer in ann:
            await peer.send(TEXT, b'421["chat_message",{"conversation_id":"new","text":"' + b"x" * EACH)
        # Only one of them fits below the cap.
        await wait_until(lambda: has_refused(bounded, SOCKETS - 1))
        grown = load_resident_bytes(bounded) - before
        for peer in ann:
            await peer.send(FIN, b'"}]')  # the rest of the message
        answers = [await peer.until(b'"detail"') for peer in ann]
        await ben.send(FIN | TEXT, b'421["chat_message",{"conversation_id":"new","text":"hello"}]')

        assert b'431[{"status":202' in await ben.until(b"events_url")
        assert grown < 8 * CAP < SOCKETS * EACH
        assert sum(b'431[{"status":429' in answer for answer in answers) >= SOCKETS - 1


async def test_what_a_socket_held_is_free_again_when_it_hangs_up(bounded: Any) -> None:
    with httpx2.Client(base_url=bounded.url, timeout=LIMIT_S, headers={"X-Dev-User": "cat"}) as http:

        def send_message() -> int:
            text = {"text": "x" * (REST + 1)}
            return http.post("/conversations/default/default/new/messages", json=text).status_code

        statuses: list[int] = []
        # A message that is sent before the socket's bytes were read can take their room: then those are dropped.
        for _ in range(TRIES):
            async with await Peer.join(bounded.url, "cat") as peer:
                await peer.send(TEXT, b"x" * (CAP - REST))  # the rest never comes
                statuses = [await asyncio.to_thread(send_message) for _ in range(MESSAGES)]
            if 429 in statuses:
                break
        assert 429 in statuses
        await wait_until(lambda: send_message() == 202)
        async with await Peer.join(bounded.url, "cat") as peer:
            await peer.send(FIN | TEXT, b'451-["chat_message",{"f":{"_placeholder":true,"num":0}}]')
            await peer.send(FIN | BINARY, bytes(CAP - REST))
        await wait_until(lambda: send_message() == 202)


async def test_thousands_of_frames_at_once_end_the_socket(bounded: Any) -> None:
    async with await Peer.join(bounded.url, "dan") as peer:
        peer.writer.write(struct.pack("!BB4x", FIN | TEXT, 0x81) + b"3" + (b"\x81\x81\0\0\0\0" + b"3") * 30_000)

        assert b"Too many" in await peer.until(b"at once")


def read_first_event(http: httpx2.Client, conversation_id: str) -> str:
    """The first line behind `ready`: of an event or a comment."""
    with http.stream("GET", f"/conversations/default/default/{conversation_id}/events") as stream:
        lines = stream.iter_lines()
        while next(lines):
            continue
        return next(lines)


async def test_a_large_snapshot_counts_until_its_socket_has_read_it(bounded: Any) -> None:
    base, text = "/conversations/default/default", {"text": "x" * 900_000}
    with httpx2.Client(base_url=bounded.url, timeout=LIMIT_S, headers={"X-Dev-User": "eve"}) as http:
        followed = http.post(f"{base}/new/messages", json=text).json()["conversation_id"]
        for _ in range(4):
            http.post(f"{base}/{followed}/messages", json=text).raise_for_status()
        payload = json.dumps({"conversation_id": followed}).encode()
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(await Peer.join(bounded.url, "eve")) for _ in range(SLOTS)]
            for peer in peers:
                await peer.send(FIN | TEXT, b'421["conv_subscribe",' + payload + b"]")
                await peer.until(b"stream_snapshot")
            while_unread = read_first_event(http, followed)
            for peer in peers:
                await peer.send(FIN | TEXT, b'422["conv_unsubscribe",' + payload + b"]")
            # So long the server would take to end them.
            await asyncio.sleep(1)
            while_unsubscribed = read_first_event(http, followed)

        assert while_unread.startswith(":")
        assert while_unsubscribed.startswith(":")
        await wait_until(lambda: read_first_event(http, followed) == "event: stream_snapshot")


@pytest.mark.parametrize("refused", [(), (b'423["no_such_event",{}]',)], ids=["answered", "refused"])
async def test_a_socket_that_never_read_gives_back_its_slot_when_it_is_gone(
    narrow: Any, refused: tuple[bytes, ...]
) -> None:
    base, text, user = "/conversations/default/default", {"text": "x" * 900_000}, f"fay-{len(refused)}"
    with httpx2.Client(base_url=narrow.url, timeout=LIMIT_S, headers={"X-Dev-User": user}) as http:
        followed = http.post(f"{base}/new/messages", json=text).json()["conversation_id"]
        for _ in range(4):
            http.post(f"{base}/{followed}/messages", json=text).raise_for_status()
        payload = json.dumps({"conversation_id": followed}).encode()

        def open_stream() -> int:
            with http.stream("GET", f"{base}/{followed}/events") as stream:
                return stream.status_code

        async with await Peer.join(narrow.url, user) as peer:
            await peer.send(FIN | TEXT, b'421["conv_subscribe",' + payload + b"]")
            await peer.until(b"stream_snapshot")
            await peer.send(FIN | TEXT, b'422["conv_status.get",' + payload + b"]")
            for call in refused:
                await peer.send(FIN | TEXT, call)
            # So long the server would take to answer.
            await asyncio.sleep(1)
            while_open = open_stream()
            peer.writer.transport.abort()

        assert while_open == 429
        await wait_until(lambda: open_stream() == 200)
