"""A model provider on loopback that answers with prepared bytes, faults included."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, TypeAdapter


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
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes
    """The body as it was sent."""


class WireProvider:
    """Answers requests in order; the last answer is repeated. Knows when a client has gone.

    `choose` may answer before that, with None for what it leaves to the order. What is read with GET is answered by its
    path from `pages`, otherwise with 404.
    """

    def __init__(self, choose: Callable[[Received], Answer | None] = lambda _: None) -> None:
        self.answers: list[Answer] = []
        self.received: list[Received] = []
        """The requests that `choose` left."""
        self.pages: dict[str, Answer] = {}
        self.read: list[Received] = []
        """The requests with GET."""
        self.client_left = asyncio.Event()
        self.url = ""
        self._choose = choose

    def answer(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    def answer_events(self, *events: str, **more: Any) -> None:
        """An event stream; each text is one ready SSE event."""
        self.answer(Answer([event.encode() for event in events], **more))

    def answer_bytes(self, stream: bytes) -> None:
        """An event stream that the network hands on byte by byte."""
        self.answer(Answer([stream[at : at + 1] for at in range(len(stream))]))

    def answer_page(self, path: str, body: Any, **more: Any) -> None:
        """What is read from this path: one JSON document."""
        self.pages[path] = Answer([json.dumps(body).encode()], headers={"content-type": "application/json"}, **more)

    def answer_error(self, status: int, body: Any, **headers: str) -> None:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer(Answer([json.dumps(body).encode()], status=status, headers=names))

    def forget(self) -> None:
        """As if nothing had been asked yet, with no answers."""
        self.answers.clear()
        self.received.clear()

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
        answer = self._find_answer(received)
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

    def _find_answer(self, received: Received) -> Answer:
        if received.method == "GET":
            self.read.append(received)
            return self.pages.get(received.path.partition("?")[0], Answer([b"{}"], status=404))
        chosen = self._choose(received)
        if chosen is not None:
            return chosen
        self.received.append(received)
        return self.answers[min(len(self.received), len(self.answers)) - 1]


async def _read_request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split()
    is_form = headers.get("content-type") == "application/x-www-form-urlencoded"
    fields = dict(parse_qsl(body.decode())) if is_form else json.loads(body or b"{}")
    return Received(method, path, headers, fields, body)


@asynccontextmanager
async def run_provider(wire: WireProvider) -> AsyncGenerator[WireProvider]:
    """On a port of its own."""
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield wire
    server.close()


def build_openai_events(text: str) -> tuple[str, ...]:
    """A whole reply of a server that speaks OpenAI's chat completions, as SSE events."""
    chunks = [
        _chunk([{"index": 0, "delta": {"content": text}, "finish_reason": None}]),
        _chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]),
        _chunk([], usage={"prompt_tokens": 1_000, "completion_tokens": 5, "total_tokens": 1_005}),
    ]
    return (*chunks, "data: [DONE]\n\n")


def _chunk(choices: list[dict[str, Any]], **more: Any) -> str:
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}
    return f"data: {json.dumps(body)}\n\n"


def check_body(params: Any, body: dict[str, Any]) -> None:
    """Raises ValidationError or ValueError if `params`, an SDK's type of a request, does not allow a body or a key in
    it. The SDKs generate these types from the providers' published schemas."""
    # A list, because pydantic does not accept a configuration for a TypedDict itself. A variable, because the iterators
    # that are read below still use it.
    adapter = TypeAdapter[Any](list[params], config=ConfigDict(extra="forbid"))
    _read_all(adapter.validate_python([body]))


def _read_all(value: object) -> None:
    """Read all items: pydantic validates those of an `Iterable` only then."""
    if isinstance(value, BaseModel):
        # Requests may also contain blocks of replies as objects, whose classes allow any key.
        raise ValueError(f"No type of a request allows {value!r}.")
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for item in value:
            _read_all(item)
