"""A provider for the adapters: a small HTTP server on loopback that answers with prepared bytes, faults included."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Answer:
    """What one request gets. Text goes out as one chunk each; `hang` keeps the connection open after the last one."""

    chunks: list[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    cut: bool = False


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class WireProvider:
    """Answers requests in order; the last answer is repeated. Knows when a client has gone."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.received: list[Received] = []
        self.client_left = asyncio.Event()
        self.url = ""

    def answer(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    def answer_events(self, *events: str, **more: Any) -> None:
        """An event stream; each text is one ready SSE event."""
        self.answer(Answer([event.encode() for event in events], **more))

    def answer_bytes(self, stream: bytes) -> None:
        """An event stream that the network hands on byte by byte."""
        self.answer(Answer([stream[at : at + 1] for at in range(len(stream))]))

    def answer_error(self, status: int, body: Any, **headers: str) -> None:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer(Answer([json.dumps(body).encode()], status=status, headers=names))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_one(reader, writer):
                pass
        except ConnectionError:
            self.client_left.set()
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        received = await _read_request(reader)
        if received is None:
            return False
        self.received.append(received)
        answer = self.answers[min(len(self.received), len(self.answers)) - 1]
        kind = "text/event-stream" if answer.status == 200 else "application/json"
        head = {"content-type": kind, "transfer-encoding": "chunked", **answer.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        writer.write(f"HTTP/1.1 {answer.status} X\r\n{lines}\r\n".encode())
        for chunk in answer.chunks:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
        if answer.hang:
            await reader.read()
            self.client_left.set()
        if answer.hang or answer.cut:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


async def _read_request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(first.split()[1], headers, json.loads(body))


@pytest.fixture
async def provider() -> AsyncIterator[WireProvider]:
    wire = WireProvider()
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield wire
    server.close()
