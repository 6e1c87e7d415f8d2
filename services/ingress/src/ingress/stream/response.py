"""An event stream as an HTTP response: sends what its feed gives, until that ends or the client is gone."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

SEND_TIMEOUT_S: Final = 60.0
"""How long a client may take nothing before its connection is closed; it resumes by its last id."""
_HEADERS: Final = {"cache-control": "no-store", "connection": "keep-alive", "x-accel-buffering": "no"}
"""The last one keeps proxies from gathering events."""

_log = structlog.get_logger(__name__)


class EventStreamResponse(StreamingResponse):
    """Costs one task beside the request's own, because thousands of them are open and idle."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncGenerator[bytes], *, send_timeout_s: float = SEND_TIMEOUT_S) -> None:
        super().__init__(chunks, headers=_HEADERS)
        self._chunks = chunks
        self._send_timeout_s = send_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Returns when the feed has ended, the client has left, or it has taken nothing for too long."""
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(_watch(receive))
                await self._feed(send)
                watching.cancel()
        except* _Left:
            pass
        except* _Stuck:
            _log.info("a client that takes nothing was let go")

    async def _feed(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                await self._send(send, chunk)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, chunk: bytes) -> None:
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError as error:
            raise _Stuck from error


class _Left(Exception):
    """The client has closed its connection."""


class _Stuck(Exception):
    """The client takes nothing."""


async def _watch(receive: Receive) -> None:
    """Raise _Left once the client is gone; what it says otherwise is no matter."""
    while (await receive())["type"] != "http.disconnect":
        continue
    raise _Left
