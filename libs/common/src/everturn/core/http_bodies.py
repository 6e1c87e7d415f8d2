"""Reads the bodies of HTTP replies in pieces and within limits, and sends those of requests in pieces. SDKs read and
write whole bodies.

HTTPX decompresses a chunk as a whole, on the event loop: a small gzip stream can expand to gigabytes.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import cast

import httpx2

MAX_ERROR_BYTES = 256 * 1024
"""Limit for the body of an error reply; the rest is not read."""
MAX_PIECE_BYTES = 64 * 1024
"""Decompressed at once."""
PIECES_AT_ONCE = 32
"""After so many the event loop has a turn: one read of a socket can hold 10,000, and each takes 0.05 ms."""
MAX_SENT_BYTES = 256 * 1024
"""Sent at once: encrypting and copying it takes less than 1 ms, during which the event loop waits."""

EventHooks = dict[str, list[Callable[..., Awaitable[None]]]]
Pieces = AsyncGenerator[bytes, None]
Check = Callable[[Pieces, httpx2.Response], Pieces]
"""Yields the pieces of this successful response that can be read; raises when there are too many."""


class UnreadableBody(Exception):
    """A body that can't be read. `is_damaged` where another reply to the same request may be sound."""

    def __init__(self, detail: str, *, is_damaged: bool = False, cause: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.is_damaged = is_damaged
        self.cause = cause


def build_event_hooks(check: Check, translate: Callable[[UnreadableBody], Exception]) -> EventHooks:
    """For the HTTP client of an SDK. `translate` returns the exception to raise instead of UnreadableBody."""

    async def bound_body(response: httpx2.Response) -> None:
        body = cast(httpx2.AsyncByteStream, response.stream)
        # A gateway can compress anyway. HTTPX would decompress a chunk as a whole, so it is done here.
        encoding = response.headers.pop("Content-Encoding", "identity").strip().lower()
        pieces = unpack(body, encoding)
        is_error = response.status_code >= 300
        bounded = limit_bytes(pieces, MAX_ERROR_BYTES) if is_error else check(pieces, response)
        response.stream = _BoundedBody(body, bounded, translate)

    return {"request": [_ask_for_plain_bytes, _send_in_pieces], "response": [bound_body]}


async def _ask_for_plain_bytes(request: httpx2.Request) -> None:
    request.headers["Accept-Encoding"] = "identity"


async def _send_in_pieces(request: httpx2.Request) -> None:
    if len(request.content) > MAX_SENT_BYTES:
        request.stream = _PartedBody(request.content)


class _PartedBody(httpx2.AsyncByteStream):
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), MAX_SENT_BYTES):
            yield self._body[start : start + MAX_SENT_BYTES]


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(
        self, body: httpx2.AsyncByteStream, bounded: Pieces, translate: Callable[[UnreadableBody], Exception]
    ) -> None:
        self._body = body
        self._bounded = bounded
        self._translate = translate

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(self._bounded) as bounded:
            try:
                async for piece in bounded:
                    yield piece
            except UnreadableBody as error:
                raise self._translate(error) from error

    async def aclose(self) -> None:
        await self._body.aclose()


async def unpack(body: AsyncIterable[bytes], encoding: str) -> Pieces:
    """Decompressed pieces of the body, up to the end of the compressed data. Raises UnreadableBody."""
    if encoding in ("", "identity"):
        count = 0
        async for chunk in body:
            yield chunk
            count += 1
            if count % PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise UnreadableBody(f"The server compressed its reply as {encoding[:40]!a}, which is not supported.")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    is_empty = True
    async for chunk in body:
        packed, is_pending = chunk, True
        while is_pending:
            try:
                piece = unpacker.decompress(packed, MAX_PIECE_BYTES)
            except zlib.error as error:
                raise UnreadableBody(
                    "The server sent data that can't be decompressed.", is_damaged=True, cause=str(error)
                ) from error
            packed = unpacker.unconsumed_tail
            # A full piece can leave output in the decompressor even without remaining input.
            is_pending = not unpacker.eof and (bool(packed) or len(piece) == MAX_PIECE_BYTES)
            if piece:
                yield piece
                # A chunk that expands to many pieces must not block the event loop.
                await asyncio.sleep(0)
        if unpacker.eof:
            # The decompressor would collect all that follows, and copy it with every chunk.
            return
        is_empty = is_empty and not chunk
    if not is_empty:  # a reply without content can name an encoding
        raise UnreadableBody("The server's reply ended before its compressed data did.", is_damaged=True)


async def limit_bytes(pieces: Pieces, max_bytes: int) -> Pieces:
    """The first `max_bytes` bytes; the rest is not read."""
    left = max_bytes
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece[:left]
            left -= len(piece)
            if left <= 0:
                return


async def check_size(pieces: Pieces, max_bytes: int) -> Pieces:
    """All pieces. Raises UnreadableBody for more than `max_bytes`."""
    size = 0
    async with aclosing(pieces):
        async for piece in pieces:
            size += len(piece)
            if size > max_bytes:
                raise UnreadableBody(f"The server sent a reply of more than {max_bytes} bytes.")
            yield piece
