"""Many followers of one conversation in one process: cheap clients over SSE and over sockets, which keep ids only.

What an ingress takes for them while they are idle is measured here too, for `make load` and `bench/idle_clients.py`. A
platform whose ingresses accept them all is started with `spawn_wide`.
"""

import asyncio
import re
import resource
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from everturn_client.client import EverturnClient
from everturn_local.processes import Child

BATCH = 50
"""Clients that connect at once."""
HELLO_SCRIPT = """
[[scripts]]
when = ""
[[scripts.rounds]]
reply = '<channel:action>{"action": "complete", "notes": "", "final_answer": "Hello."}</channel:action>'
"""
WIDE_INGRESS = (
    "import sys; from ingress.__main__ import main; from ingress.bounds import Bounds; "
    "sys.exit(main([], bounds=Bounds(streams_of_user=10_000, heartbeat_s=60)))"
)
"""`python -m ingress` for one user with that many streams."""
TRIES = 10
_ID = re.compile(rb'"id":"(\d+-\d+)","type":"chat\.delta"')


def allow_files(count: int) -> None:
    """Let this process and those it starts have so many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def load_rss_kib(pid: int) -> int:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def spawn_wide(argv: Sequence[str], **more: Any) -> Child:
    """As `Platform` starts a process, except that ingresses are WIDE_INGRESS."""
    *python, _, module = argv
    return Child([*python, "-c", WIDE_INGRESS] if module == "ingress" else argv, **more)


async def hold_conversation(client: EverturnClient) -> tuple[str, str]:
    """A conversation in which nothing happens any more, and its last event. The model plays HELLO_SCRIPT."""
    accepted = await client.send_message("new", "Hello.")
    *_, last = [step async for step in client.follow_turn(accepted.conversation_id, accepted.turn_id)]
    return accepted.conversation_id, last.envelope.id or last.state.cursor


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """KiB that a process took for `count` clients, and for each of those after the first fifth, which warm it up."""

    count: int
    kib: int
    each_kib: float


async def measure_memory(pid: int, open_clients: Callable[[int], Awaitable[None]], count: int) -> MemoryUse:
    """What the process takes while so many more clients are opened, which stay open."""
    first = count // 5
    before = load_rss_kib(pid)
    await open_clients(first)
    warm = load_rss_kib(pid)
    await open_clients(count - first)
    after = load_rss_kib(pid)
    return MemoryUse(count, after - before, (after - warm) / (count - first))


class Followers:
    """Clients of one ingress that follow one conversation from a cursor on."""

    def __init__(self, url: str, conversation: str, after: str) -> None:
        self._url = url
        self._conversation = conversation
        self._after = after
        self._clients: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._web = aiohttp.ClientSession(base_url=url, connector=aiohttp.TCPConnector(limit=0))
        self._sockets: list[aiohttp.ClientWebSocketResponse] = []

    async def open_streams(self, count: int) -> None:
        for opened in range(0, count, BATCH):
            batch = range(min(BATCH, count - opened))
            self._clients += await asyncio.gather(*(self._open_stream() for _ in batch))

    async def open_sockets(self, count: int) -> None:
        for opened in range(0, count, BATCH):
            batch = range(min(BATCH, count - opened))
            self._sockets += await asyncio.gather(*(self._open_socket() for _ in batch))

    async def _open_stream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A busy server's 503 is waited out."""
        for tries_left in reversed(range(TRIES)):
            reader, writer = await self._ask_stream()
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 200 "):
                await reader.readuntil(b"event: ready")
                return reader, writer
            writer.close()
            assert head.startswith(b"HTTP/1.1 503 ") and tries_left, head
            await asyncio.sleep(int(head.lower().partition(b"retry-after: ")[2].partition(b"\r\n")[0]))
        raise AssertionError("never asked")

    async def _ask_stream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = urlsplit(self._url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        path = f"/conversations/default/default/{self._conversation}/events?after={self._after}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
        return reader, writer

    async def _open_socket(self) -> aiohttp.ClientWebSocketResponse:
        socket = await self._web.ws_connect("/socket.io/?EIO=4&transport=websocket", autoping=True)
        await socket.receive_str()
        await socket.send_str("40{}")
        while not (await socket.receive_str()).startswith("40"):
            continue
        payload = f'{{"conversation_id":"{self._conversation}","after":"{self._after}"}}'
        await socket.send_str(f'421["conv_subscribe",{payload}]')
        while not (await socket.receive_str()).startswith('42["ready"'):
            continue
        return socket

    async def collect(self, last: str) -> list[list[str]]:
        """For each client the ids of the events it got, up to `last`."""
        streams = (self._read_stream(reader, last) for reader, _ in self._clients)
        sockets = (self._read_socket(socket, last) for socket in self._sockets)
        return list(await asyncio.gather(*streams, *sockets))

    async def _read_stream(self, reader: asyncio.StreamReader, last: str) -> list[str]:
        ids: list[str] = []
        while not ids or ids[-1] != last:
            ids += [found.decode() for found in _ID.findall(await reader.readline())]
        return ids

    async def _read_socket(self, socket: aiohttp.ClientWebSocketResponse, last: str) -> list[str]:
        ids: list[str] = []
        while not ids or ids[-1] != last:
            frame = await socket.receive_str()
            if frame == "2":
                await socket.send_str("3")
            ids += [found.decode() for found in _ID.findall(frame.encode())]
        return ids

    async def close(self) -> None:
        for _, writer in self._clients:
            writer.close()
        await self._web.close()
