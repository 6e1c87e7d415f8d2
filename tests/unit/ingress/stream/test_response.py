"""An event stream as an HTTP response, with the server's end of the connection in memory."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message, Scope

from ingress.admission.connections import CUT_KEY
from ingress.stream.sse import PIECE_BYTES, EventStreamResponse

SCOPE: Scope = {"type": "http"}
LIMIT_S = 10.0


class Line:
    """A connection: what was sent over it, and when its client leaves. A stuck one accepts only the head;
    `pause_s` is how long it takes for each message."""

    def __init__(self, *, stuck: bool = False, pause_s: float = 0.0) -> None:
        self.sent: list[Message] = []
        self.left = asyncio.Event()
        self._stuck = stuck
        self._pause_s = pause_s
        self._asked = False

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._stuck and message["type"] == "http.response.body":
            await asyncio.Event().wait()
        await asyncio.sleep(self._pause_s)
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Feed:
    """Yields some chunks, then waits forever or ends; `closed` once it is over."""

    def __init__(self, *chunks: bytes, endless: bool = False, failure: Exception | None = None) -> None:
        self.waiting, self.closed = asyncio.Event(), False
        self._chunks = chunks
        self._endless = endless
        self._failure = failure

    async def run(self) -> AsyncGenerator[bytes]:
        try:
            for chunk in self._chunks:
                yield chunk
            if self._failure:
                raise self._failure
            self.waiting.set()
            if self._endless:
                await asyncio.Event().wait()
        finally:
            self.closed = True


async def test_a_feed_that_ends_is_sent_completely_with_its_end() -> None:
    feed, line = Feed(b"a", b"b"), Line()

    async with asyncio.timeout(LIMIT_S):
        await EventStreamResponse(feed.run(), send_timeout_s=LIMIT_S)(SCOPE, line.receive, line.send)

    head, *_, last = line.sent
    assert head["status"] == 200
    headers = dict(head["headers"])
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert (headers[b"cache-control"], headers[b"x-accel-buffering"]) == (b"no-store", b"no")
    assert b"content-length" not in headers
    assert line.body == b"ab"
    assert last["more_body"] is False


class Writer:
    """Accepts every second piece."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._turn = 0

    @property
    def is_free(self) -> bool:
        self._turn += 1
        return self._turn % 2 == 1

    def write(self, piece: bytes) -> None:
        self._line.sent.append({"type": "written", "body": piece})


async def test_pieces_are_written_directly_while_the_connection_is_free() -> None:
    feed, line = Feed(b"a", b"b", b"c"), Line()
    response = EventStreamResponse(feed.run(), send_timeout_s=LIMIT_S, writer=Writer(line))

    async with asyncio.timeout(LIMIT_S):
        await response(SCOPE, line.receive, line.send)

    assert [each["type"] for each in line.sent[1:4]] == ["written", "http.response.body", "written"]
    assert line.body == b"abc"


async def test_a_client_that_leaves_ends_a_feed_that_waits() -> None:
    feed, line = Feed(b"a", endless=True), Line()
    answering = asyncio.create_task(
        EventStreamResponse(feed.run(), send_timeout_s=LIMIT_S)(SCOPE, line.receive, line.send)
    )
    await asyncio.wait_for(feed.waiting.wait(), LIMIT_S)

    line.left.set()
    await asyncio.wait_for(answering, LIMIT_S)

    assert feed.closed
    assert line.body == b"a"


async def test_a_client_that_reads_nothing_is_disconnected() -> None:
    feed, line = Feed(b"a", endless=True), Line(stuck=True)

    async with asyncio.timeout(LIMIT_S):
        await EventStreamResponse(feed.run(), send_timeout_s=0.01)(SCOPE, line.receive, line.send)

    assert feed.closed
    assert line.body == b""


async def test_a_stuck_client_is_disconnected_before_the_response_returns() -> None:
    """The server logs an error for a response that returns incomplete while its client is connected."""
    feed, line = Feed(b"a", endless=True), Line(stuck=True)
    scope: Scope = {**SCOPE, CUT_KEY: lambda: asyncio.get_running_loop().call_soon(line.left.set)}

    async with asyncio.timeout(LIMIT_S):
        await EventStreamResponse(feed.run(), send_timeout_s=0.01)(scope, line.receive, line.send)

    assert line.left.is_set()
    assert feed.closed


async def test_a_large_chunk_that_is_read_too_slowly_is_aborted() -> None:
    chunk = b"a" * 100 * PIECE_BYTES
    feed, line = Feed(chunk, endless=True), Line(pause_s=0.05)
    response = EventStreamResponse(feed.run(), send_timeout_s=0.5, min_bytes_per_s=100 * len(chunk))

    async with asyncio.timeout(LIMIT_S):
        await response(SCOPE, line.receive, line.send)

    assert feed.closed
    assert 0 < len(line.body) < len(chunk)


async def test_a_feed_that_fails_is_an_error_of_the_server() -> None:
    feed, line = Feed(b"a", failure=TimeoutError("of the feed, not of the client")), Line()

    with pytest.raises(ExceptionGroup) as failed:
        async with asyncio.timeout(LIMIT_S):
            await EventStreamResponse(feed.run(), send_timeout_s=LIMIT_S)(SCOPE, line.receive, line.send)

    assert failed.group_contains(TimeoutError, match="of the feed")


async def test_a_response_that_is_cancelled_closes_its_feed() -> None:
    feed, line = Feed(endless=True), Line()
    answering = asyncio.create_task(
        EventStreamResponse(feed.run(), send_timeout_s=LIMIT_S)(SCOPE, line.receive, line.send)
    )
    await asyncio.wait_for(feed.waiting.wait(), LIMIT_S)

    answering.cancel()
    await asyncio.wait([answering], timeout=LIMIT_S)

    assert answering.cancelled()
    assert feed.closed
