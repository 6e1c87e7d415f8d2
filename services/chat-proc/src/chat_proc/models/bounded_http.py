"""Bounds what an HTTP reply of a provider may hold, below the SDKs, which read whole events and errors into memory.

An SDK copies an event that does not end again with every chunk or every line of it, and decodes it on the event loop:
80 MB without an end, or a small gzip stream that unpacks to them, once stopped a worker for so long that it lost the
leases of all its turns.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import cast

import httpx2

from everturn.ports.language_model import ModelFailed

MAX_EVENT_BYTES = 4 * 1024 * 1024
"""Of one event of a stream, or of another successful reply: four times what a whole reply of ASCII may hold."""
MAX_COPIED_BYTES = 256 * 1024 * 1024
"""The size of one event times its lines: the SDK of Anthropic copies what it has of an event once for each line. That
takes some 50 ms. An event of a provider has two or three lines."""
MAX_ERROR_BYTES = 256 * 1024
"""Of the body of any other status; the rest is not read."""
MAX_PIECE_BYTES = 64 * 1024
"""Unpacked at once."""

_EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_LONGEST_END = 4

EventHooks = dict[str, list[Callable[..., Awaitable[None]]]]


def build_event_hooks() -> EventHooks:
    """For the HTTP client of an SDK."""
    return {"request": [_ask_for_plain_bytes], "response": [_bound_body]}


async def _ask_for_plain_bytes(request: httpx2.Request) -> None:
    request.headers["Accept-Encoding"] = "identity"


async def _bound_body(response: httpx2.Response) -> None:
    body = cast(httpx2.AsyncByteStream, response.stream)
    # A gateway may compress all the same. HTTPX would unpack a chunk as a whole, so it is done here, piece by piece.
    encoding = response.headers.pop("Content-Encoding", "identity")
    response.stream = _BoundedBody(body, encoding=encoding.strip().lower(), is_error=response.status_code >= 300)


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream, *, encoding: str, is_error: bool) -> None:
        self._body = body
        self._encoding = encoding
        self._is_error = is_error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = _unpack(self._body, self._encoding)
        async with aclosing(_take(pieces, MAX_ERROR_BYTES) if self._is_error else _check_events(pieces)) as bounded:
            async for piece in bounded:
                yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


async def _unpack(body: AsyncIterable[bytes], encoding: str) -> AsyncGenerator[bytes, None]:
    """Pieces of the body without its compression. Raises ModelFailed."""
    if encoding in ("", "identity"):
        async for chunk in body:
            yield chunk
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ModelFailed("The provider compressed its reply in a way that it was not asked for.", kind="invalid_reply")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    async for chunk in body:
        packed = chunk
        while packed:
            try:
                piece = unpacker.decompress(packed, MAX_PIECE_BYTES)
            except zlib.error as error:
                raise ModelFailed(
                    "The provider sent data that can't be read.",
                    kind="invalid_reply",
                    retryable=True,
                    provider_text=str(error),
                ) from error
            packed = unpacker.unconsumed_tail
            if piece:
                yield piece
                # A chunk that unpacks to many pieces must not hold the event loop.
                await asyncio.sleep(0)
        if unpacker.eof:
            # The unpacker would collect all that follows, and copy it with every chunk.
            return


async def _take(pieces: AsyncGenerator[bytes, None], left: int) -> AsyncGenerator[bytes, None]:
    """The first `left` bytes."""
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece[:left]
            left -= len(piece)
            if left <= 0:
                return


async def _check_events(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """All pieces. Raises ModelFailed for an event that is too long or has too many lines."""
    size, lines, before = 0, 0, b""
    async with aclosing(pieces):
        async for piece in pieces:
            seen = before + piece
            ends = [(seen.find(end) + len(end), seen.rfind(end) + len(end)) for end in _EVENT_ENDS if end in seen]
            rest = seen[len(before) : min(ends)[0]] if ends else piece
            size, lines = size + len(rest), lines + _count_breaks(rest)
            _check_event(size, lines)
            if ends:
                rest = seen[max(last for _, last in ends) :]
                size, lines = len(rest), _count_breaks(rest)
                _check_event(size, lines)
            before = seen[-(_LONGEST_END - 1) :]
            yield piece


def _count_breaks(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r")


def _check_event(size: int, lines: int) -> None:
    """`lines` of `size` bytes were read without the end of an event."""
    if size > MAX_EVENT_BYTES:
        raise ModelFailed(
            f"The provider sent more than {MAX_EVENT_BYTES // 1024**2} MB without the end of an event.",
            kind="reply_too_long",
        )
    if size * lines > MAX_COPIED_BYTES:
        raise ModelFailed("The provider sent too many lines without the end of an event.", kind="reply_too_long")
