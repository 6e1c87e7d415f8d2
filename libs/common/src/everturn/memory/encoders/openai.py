"""OpenAI's embedding models of the third generation, or a server with a compatible API, through the official SDK."""

import asyncio
import math
from collections.abc import Callable, Sequence

import httpx2
from openai import (
    APIConnectionError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
    InternalServerError,
    OpenAIError,
    RateLimitError,
)
from openai.types import CreateEmbeddingResponse

from everturn.core.http_bodies import EventHooks, Pieces, UnreadableBody, build_event_hooks, check_size
from everturn.core.retry import RetryPolicy
from everturn.memory.embedder import DIMENSIONS, EmbedderUnavailable, Vector

MAX_BATCH = 64
"""Parsing the JSON of the reply takes 4 ms, in which no other thread runs."""
MAX_TEXT_CHARS = 8_000
"""Below the limit of 8,192 tokens per input, in any language."""
MAX_REPLY_BYTES = 2 * 1024 * 1024
"""Twice the size of the vectors of a whole batch with 17 digits a number, each on its own indented line."""
TIMEOUT_S = 15.0
RETRIES = RetryPolicy((0.5, 1.0))
"""Short enough for a query, which waits at most `memory.search.EMBED_TIMEOUT_S`; the indexer tries again later."""


def build_embedder(model: str) -> "OpenAIEmbedder":
    """Key and base URL come from the SDK's own environment variables. Raises EmbedderUnavailable without a key."""
    try:
        http = DefaultAsyncHttpxClient(event_hooks=build_bounds(), timeout=TIMEOUT_S)
        client = AsyncOpenAI(max_retries=0, timeout=TIMEOUT_S, http_client=http)
    except OpenAIError as error:
        raise EmbedderUnavailable(str(error)) from error
    return OpenAIEmbedder(client, model)


def build_bounds() -> EventHooks:
    """For the HTTP client: limits the size of replies, so that no server can exhaust the memory."""
    return build_event_hooks(_check_reply, _translate)


def _check_reply(pieces: Pieces, _: httpx2.Response) -> Pieces:
    return check_size(pieces, MAX_REPLY_BYTES)


def _translate(error: UnreadableBody) -> ValueError:
    return ValueError(error.detail)


class OpenAIEmbedder:
    """One model behind one client, with vectors of our size."""

    lexical_only = False

    def __init__(self, client: AsyncOpenAI, model: str, *, retries: RetryPolicy = RETRIES) -> None:
        self._client = client
        self._retries = retries
        self._model = model
        self.name = f"openai:{model}:{DIMENSIONS}"

    async def close(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        found: list[Vector] = []
        for start in range(0, len(texts), MAX_BATCH):
            found += await self._embed_batch(texts[start : start + MAX_BATCH])
        return tuple(found)

    async def _embed_batch(self, texts: Sequence[str]) -> list[Vector]:
        # The API rejects an empty input, and a lone surrogate can't be sent.
        inputs = [text[:MAX_TEXT_CHARS].encode(errors="replace").decode() or " " for text in texts]
        try:
            parse = await self._retries.call(lambda: self._request(inputs))
            # A whole batch takes 40 ms.
            vectors = await asyncio.to_thread(_read_vectors, parse)
        except (OpenAIError, OSError, ValueError) as error:
            raise EmbedderUnavailable(f"{self.name}: {error}") from error
        if len(vectors) != len(texts) or any(len(vector) != DIMENSIONS for vector in vectors):
            raise EmbedderUnavailable(f"{self.name}: the answer does not have {len(texts)} x {DIMENSIONS} numbers.")
        return vectors

    async def _request(self, inputs: list[str]) -> Callable[[], CreateEmbeddingResponse]:
        """Return what parses the reply. Raises EmbedderUnavailable if another attempt may succeed."""
        try:
            reply = await self._client.embeddings.with_raw_response.create(
                model=self._model, input=inputs, dimensions=DIMENSIONS, encoding_format="float"
            )
        except (APIConnectionError, InternalServerError, RateLimitError) as error:
            raise EmbedderUnavailable(f"{self.name}: {error}") from error
        return reply.parse


def _read_vectors(parse: Callable[[], CreateEmbeddingResponse]) -> list[Vector]:
    return [_normalise(row.embedding) for row in sorted(parse().data or (), key=lambda row: row.index)]


def _normalise(vector: Sequence[float]) -> Vector:
    length = math.sqrt(sum(value * value for value in vector))
    return tuple(value / length for value in vector) if length else tuple(vector)
