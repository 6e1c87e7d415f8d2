"""Clients that take whole turns through a platform with a scripted model, and what the platform's processes use."""

import asyncio
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from everturn_local.supervision.platform import Platform

TOKENS, MARK = 200, b"~"
LIMIT_S = 60.0
IDLE_CHECK_S, IDLE_SHARE, IDLE_LIMIT_S = 1.0, 0.1, 180.0
ENCODER = b"everturn.memory.encoders.minilm"


def build_script(tokens: int = TOKENS, *, pause_ms: int = 0) -> str:
    """A scripted model that answers every message with this many tokens."""
    return f"""
[[scripts]]
when = ""
[[scripts.rounds]]
chunk_chars = 5
pause_ms = {pause_ms}
reply = '''<channel:action>{{"action": "complete", "notes": "", "tool_call": null, "final_answer": "{"tok~ " * tokens}",
"suggested_followups": null}}</channel:action>'''
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """Seconds from sending a message until it was accepted, until each token, and until the end; bytes received."""

    accepted_s: float
    tokens_s: Sequence[float]
    ended_s: float
    received: int


class Client(Protocol):
    async def open(self) -> None: ...

    async def run_turn(self) -> Turn: ...

    async def close(self) -> None: ...


class PlatformClient:
    """Sends over one connection and follows over another, as a browser does."""

    message = b'{"text":"Hi"}'

    def __init__(self, url: str, user: str, *, tokens: int = TOKENS) -> None:
        parts = urlsplit(url)
        self._tokens = tokens
        self._host, self._port, self._user = parts.hostname, parts.port, user
        self._base = "/conversations/default/default"
        self._conversation = ""
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        self._requests, self._send = await self._connect()
        self._stream, follow = await self._connect()
        self._conversation = json.loads(await self._request("POST", self._base, b"{}"))["conversation_id"]
        follow.write(self._head("GET", f"{self._base}/{self._conversation}/events"))
        await self._stream.readuntil(b"ready")

    async def run_turn(self) -> Turn:
        began = time.perf_counter()
        accepting = asyncio.create_task(
            self._request("POST", f"{self._base}/{self._conversation}/messages", self.message)
        )
        tokens: list[float] = []
        received, rest, is_complete = 0, b"", False
        # A notice of the turn before can still come, so only the one after this turn's end counts.
        while not is_complete or b'{"state":"idle"}' not in rest:
            data = await self._stream.read(1 << 18)
            assert data, "the stream ended"
            received += len(data)
            self.note(data)
            # The end repeats the answer.
            tokens += [time.perf_counter() - began] * min(data.count(MARK), self._tokens - len(tokens))
            rest = rest[-64:] + data
            if not is_complete:
                _, found, after = rest.partition(b'"type":"chat.complete"')
                is_complete, rest = bool(found), after if found else rest
        ended = time.perf_counter() - began
        await accepting
        return Turn(self._accepted - began, tokens, ended, received)

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()

    def note(self, data: bytes) -> None:
        """Called with what arrives of the stream."""

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=1 << 22)
        self._writers.append(writer)
        return reader, writer

    async def _request(self, method: str, path: str, body: bytes) -> bytes:
        """The answer; while the server is too busy to accept, again when it says."""
        while True:
            self._send.write(self._head(method, path, body))
            head = await self._requests.readuntil(b"\r\n\r\n")
            self._accepted = time.perf_counter()
            status, *lines = head.lower().split(b"\r\n")
            headers = dict(line.split(b": ", 1) for line in lines if line)
            answer = await self._requests.readexactly(int(headers[b"content-length"]))
            if status.split()[1] in (b"201", b"202"):
                return answer
            assert status.split()[1] == b"503", (head, answer)
            await asyncio.sleep(float(headers[b"retry-after"]))

    def _head(self, method: str, path: str, body: bytes = b"") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nX-Dev-User: {self._user}\r\n"
        head += "Accept: text/event-stream, application/json\r\n"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def drive(clients: Sequence[Client], turns: int) -> tuple[list[Turn], float]:
    """Let the clients take so many turns in all, after one each that doesn't count."""
    left = turns
    found: list[Turn] = []

    async def run_lane(client: Client) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            found.append(await client.run_turn())

    async with asyncio.timeout(LIMIT_S):
        for client in clients:
            await client.open()
        await clients[0].run_turn()
        began = time.perf_counter()
        await asyncio.gather(*(run_lane(client) for client in clients))
        took_s = time.perf_counter() - began
    for client in clients:
        await client.close()
    return found, took_s


async def wait_until_idle(platform: Platform) -> None:
    """Wait until the platform does nothing any more, such as indexing the turns that ended."""
    async with asyncio.timeout(IDLE_LIMIT_S):
        used_s = IDLE_CHECK_S
        while used_s > IDLE_SHARE * IDLE_CHECK_S:
            before_s = sum(load_cpu(platform).values())
            await asyncio.sleep(IDLE_CHECK_S)
            used_s = sum(load_cpu(platform).values()) - before_s


def load_process_cpu(pid: int) -> float:
    """CPU seconds so far of one process, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load_cpu(platform: Platform) -> dict[str, float]:
    """CPU seconds so far of each part of the platform, with its children; the encoders of memory search are a part."""
    ticks = os.sysconf("SC_CLK_TCK")
    spent: dict[int, float] = {}
    parent: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # Of the process, and of the children that it has waited for.
        spent[int(folder.name)] = sum(map(int, fields[11:15])) / ticks
        parent[int(folder.name)] = int(fields[1])
    parts = ("postgres", "redis", *platform.reports)
    names = {platform.pid(name): name.partition("-")[0] for name in parts}
    names |= {pid: "encoder" for pid in spent if is_encoder(pid)}
    sums = dict.fromkeys((*names.values(), "encoder"), 0.0)
    for pid, seconds in spent.items():
        at = pid
        while at not in names and at in parent:
            at = parent[at]
        if at in names:
            sums[names[at]] += seconds
    return sums


def is_encoder(pid: int) -> bool:
    try:
        return ENCODER in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
