"""The OpenAI encoder against a small HTTP server on loopback."""

import asyncio
import gzip
import json
import math
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx2
import pytest

from everturn.memory.embedder import DIMENSIONS, EmbedderUnavailable
from everturn.memory.encoders.openai import MAX_BATCH, MAX_REPLY_BYTES, OpenAIEmbedder, build_embedder


class Provider:
    """Answers every request with one vector for each input, unless `status` is set."""

    def __init__(self) -> None:
        self.bodies: list[dict] = []
        self.status = 200
        self.numbers = DIMENSIONS
        self.padding = 0
        self.encoding = ""
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = json.loads(await reader.readexactly(size))
        self.bodies.append(body)
        self.heads.append(head.lower())
        rows = [
            {"object": "embedding", "index": n, "embedding": [2.0 * (n + 1), 1.0, *[0.0] * (self.numbers - 2)]}
            for n in range(len(body["input"]))
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        answer = json.dumps({"object": "list", "model": "m", "data": rows[::-1], "usage": usage}).encode()
        answer = b" " * self.padding + answer
        encoding = f"content-encoding: {self.encoding}\r\n" if self.encoding else ""
        answer = gzip.compress(answer) if self.encoding == "gzip" else answer
        writer.write(
            f"HTTP/1.1 {self.status} X\r\ncontent-type: application/json\r\nconnection: close\r\n{encoding}"
            f"content-length: {len(answer)}\r\n\r\n".encode()
            + answer
        )
        with suppress(ConnectionError):  # a client that has read enough hangs up
            await writer.drain()
        writer.close()


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
async def embedder(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenAIEmbedder]:
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    async with server:
        yield build_embedder("text-embedding-3-small")


async def test_vectors_come_in_the_order_of_the_texts(embedder, provider) -> None:
    found = await embedder.embed(["first", "", "third"])

    assert provider.bodies[0]["dimensions"] == DIMENSIONS
    assert provider.bodies[0]["input"] == ["first", " ", "third"]
    assert [round(vector[0] / vector[1]) for vector in found] == [2, 4, 6]
    assert [math.hypot(*vector) for vector in found] == pytest.approx([1.0] * 3)


async def test_many_texts_go_in_several_requests(embedder, provider) -> None:
    assert len(await embedder.embed(["x"] * (MAX_BATCH + 3))) == MAX_BATCH + 3

    assert [len(body["input"]) for body in provider.bodies] == [MAX_BATCH, 3]


async def test_replies_are_read_beside_the_event_loop(embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    decode = httpx2.Response.json

    def record(response: httpx2.Response, **options: object) -> object:
        threads.append(threading.current_thread())
        return decode(response, **options)

    monkeypatch.setattr(httpx2.Response, "json", record)

    await embedder.embed(["x"])

    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize(("status", "requests"), [(500, 3), (429, 3), (401, 1), (400, 1)])
async def test_only_errors_that_may_pass_are_retried(embedder, provider, status: int, requests: int) -> None:
    provider.status = status

    with pytest.raises(EmbedderUnavailable, match="openai:text-embedding-3-small"):
        await embedder.embed(["x"])

    assert len(provider.bodies) == requests


@pytest.mark.parametrize("encoding", ["", "gzip"])
async def test_a_reply_beyond_its_bound_is_unavailable(embedder, provider, encoding: str) -> None:
    provider.padding, provider.encoding = 2 * MAX_REPLY_BYTES, encoding

    with pytest.raises(EmbedderUnavailable, match=f"more than {MAX_REPLY_BYTES} bytes"):
        await embedder.embed(["x"])

    assert len(provider.bodies) == 1
    assert b"accept-encoding: identity" in provider.heads[0]


async def test_a_reply_that_a_gateway_compressed_is_read(embedder, provider) -> None:
    provider.encoding = "gzip"

    assert len(await embedder.embed(["x", "y"])) == 2


async def test_a_reply_that_can_not_be_unpacked_is_unavailable(embedder, provider) -> None:
    provider.encoding = "br"

    with pytest.raises(EmbedderUnavailable, match="compressed"):
        await embedder.embed(["x"])


async def test_vectors_of_another_size_are_unavailable(embedder, provider) -> None:
    provider.numbers = 3

    with pytest.raises(EmbedderUnavailable, match="1 x 384"):
        await embedder.embed(["x"])


def test_without_a_key_there_is_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(EmbedderUnavailable):
        build_embedder("text-embedding-3-small")
