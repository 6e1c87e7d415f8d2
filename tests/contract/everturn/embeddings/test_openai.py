"""The OpenAI encoder against a small HTTP server on loopback."""

import asyncio
import json
import math
from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI

from everturn.embeddings.openai import MAX_BATCH, OpenAIEmbedder, build_embedder
from everturn.ports.memory.embedder import DIMENSIONS, EmbedderUnavailable


class Provider:
    """Answers every request with one vector for each input, unless `status` says otherwise."""

    def __init__(self) -> None:
        self.bodies: list[dict] = []
        self.status = 200
        self.numbers = DIMENSIONS

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = json.loads(await reader.readexactly(size))
        self.bodies.append(body)
        rows = [
            {"object": "embedding", "index": n, "embedding": [2.0 * (n + 1), 1.0, *[0.0] * (self.numbers - 2)]}
            for n in range(len(body["input"]))
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        answer = json.dumps({"object": "list", "model": "m", "data": rows[::-1], "usage": usage}).encode()
        writer.write(
            f"HTTP/1.1 {self.status} X\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"content-length: {len(answer)}\r\n\r\n".encode()
            + answer
        )
        await writer.drain()
        writer.close()


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
async def embedder(provider: Provider) -> AsyncIterator[OpenAIEmbedder]:
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, AsyncOpenAI(api_key="sk", base_url=f"http://127.0.0.1:{port}/v1", max_retries=0) as client:
        yield OpenAIEmbedder(client, "text-embedding-3-small")


async def test_vectors_of_our_size_are_asked_for_and_come_in_the_order_of_the_texts(embedder, provider) -> None:
    found = await embedder.embed(["first", "", "third"])

    assert provider.bodies[0]["dimensions"] == DIMENSIONS
    assert provider.bodies[0]["input"] == ["first", " ", "third"]
    assert [round(vector[0] / vector[1]) for vector in found] == [2, 4, 6]
    assert [math.hypot(*vector) for vector in found] == pytest.approx([1.0] * 3)


async def test_many_texts_go_in_several_requests(embedder, provider) -> None:
    assert len(await embedder.embed(["x"] * (MAX_BATCH + 3))) == MAX_BATCH + 3

    assert [len(body["input"]) for body in provider.bodies] == [MAX_BATCH, 3]


async def test_a_refusal_is_unavailable(embedder, provider) -> None:
    provider.status = 500

    with pytest.raises(EmbedderUnavailable, match="openai:text-embedding-3-small"):
        await embedder.embed(["x"])


async def test_vectors_of_another_size_are_unavailable(embedder, provider) -> None:
    provider.numbers = 3

    with pytest.raises(EmbedderUnavailable, match="1 x 384"):
        await embedder.embed(["x"])


def test_without_a_key_there_is_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(EmbedderUnavailable):
        build_embedder("text-embedding-3-small")
