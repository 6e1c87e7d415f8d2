"""Frames between a worker and a host: contents in parts, messages between them, limits, and what is no frame."""

import asyncio
import json
import socket
import struct
import time
from collections.abc import AsyncIterator

import pytest

from everturn_sdk.json_size import has_more_values
from everturn_sdk.protocol import (
    MAX_CONTENT_BYTES,
    MAX_MESSAGE_BYTES,
    PART_BYTES,
    TO_WORKER,
    Beat,
    Connection,
    Ended,
    Event,
    FrameError,
    Log,
    ToWorker,
    encode_message,
    read_content,
)


class Pair:
    """Two ends of a socket; `got` is what arrived at the second, and `ends` why that was closed."""

    def __init__(self) -> None:
        self.got: list[tuple[ToWorker, bytes]] = []
        self.ends: list[str] = []
        self.ended = asyncio.Event()
        self.first = Connection(TO_WORKER, lambda _message, _content: None, lambda _reason: None)
        self.second = Connection(TO_WORKER, self.receive, self.close)

    def receive(self, message: ToWorker, content: bytes) -> None:
        self.got.append((message, content))

    def close(self, reason: str) -> None:
        self.ends.append(reason)
        self.ended.set()

    async def finish(self) -> None:
        self.first.close()
        async with asyncio.timeout(10):
            await self.ended.wait()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    loop, pair = asyncio.get_running_loop(), Pair()
    sockets = socket.socketpair()
    for each, connection in zip(sockets, (pair.first, pair.second), strict=True):
        each.setblocking(False)
        await loop.create_connection(lambda connection=connection: connection, sock=each)
    yield pair
    pair.first.close()
    pair.second.close()


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


async def wait_for(pair: Pair, count: int) -> None:
    async with asyncio.timeout(10):
        while len(pair.got) < count:  # noqa: ASYNC110 - the connection calls no event
            await asyncio.sleep(0.005)


async def test_a_content_of_many_parts_arrives_whole_among_other_messages(pair: Pair):
    content = bytes(range(256)) * (5 * PART_BYTES // 256) + b"rest"
    sending, beats = asyncio.create_task(pair.first.send_content(Ended(number=1, status="ok"), content)), 0
    while not sending.done():
        pair.first.send(Beat())
        beats += 1
        await asyncio.sleep(0)
    await wait_for(pair, beats + 1)

    ended = [(message, got) for message, got in pair.got if isinstance(message, Ended)]
    assert ended == [(Ended(number=1, status="ok", content_bytes=len(content)), content)]
    assert {type(message) for message, _ in pair.got} == {Beat, Ended}


async def test_contents_of_several_senders_are_not_mixed(pair: Pair):
    contents = {number: bytes([number]) * (2 * PART_BYTES + number) for number in range(4)}

    await asyncio.gather(
        *(pair.first.send_content(Ended(number=number, status="ok"), data) for number, data in contents.items())
    )
    await wait_for(pair, 4)

    assert {message.number: got for message, got in pair.got if isinstance(message, Ended)} == contents


async def test_a_thousand_messages_arrive_in_order(pair: Pair):
    for number in range(1_000):
        pair.first.send(Log(number=number, text="x" * 100))
    await wait_for(pair, 1_000)

    assert [message.number for message, _ in pair.got if isinstance(message, Log)] == list(range(1_000))


async def test_reading_large_messages_takes_a_part_of_the_time(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    event = Event(number=1, event="data", data={"a": "x" * 200_000})
    receive = pair.second._receive

    def work(message: ToWorker, content: bytes) -> None:
        receive(message, content)
        until_s = time.thread_time() + 0.002
        while time.thread_time() < until_s:
            pass

    monkeypatch.setattr(pair.second, "_receive", work)
    began_s = time.monotonic()
    for _ in range(50):
        pair.first.send(event)
    await wait_for(pair, 50)

    # Each takes as long as a slice, after which there is a pause.
    assert 0.3 * (time.monotonic() - began_s) > 50 * 0.002


async def test_what_is_too_long_is_refused_by_the_sender(pair: Pair):
    with pytest.raises(FrameError, match="at most 262144"):
        pair.first.send(Event(number=1, event="data", data={"a": "x" * MAX_MESSAGE_BYTES}))
    with pytest.raises(FrameError, match="at most 16777216"):
        await pair.first.send_content(Ended(number=1, status="ok"), b"x" * (MAX_CONTENT_BYTES + 1))
    with pytest.raises(FrameError, match="more than 20000 values"):
        pair.first.send(Event(number=1, event="data", data={"a": [1] * 20_001}))
    with pytest.raises(FrameError, match="JSON"):
        encode_message(Event(number=1, event="data", data={"a": "\ud800"}))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (struct.pack(">I", MAX_MESSAGE_BYTES + 1), "a frame of 262145 bytes"),
        (struct.pack(">I", 0x80000000 | (PART_BYTES + 1)), "a frame of 262145 bytes"),
        (struct.pack(">I", 3) + b"{}x", "Invalid JSON"),
        (frame(b'{"kind":"log","number":1,"text":[' + b"[]," * 80_000 + b"[]]}"), "more than 20000 values"),
        (
            frame(b'{"kind":"log",' + b"".join(b'"%d":1,' % n for n in range(15_000)) + b'"number":1}'),
            "it has 15001 errors",
        ),
        (frame(b'{"kind":"log","number":1,"text":"' + b"x" * 10_193 + b'"}'), "at most 10192 characters"),
        (frame(b'{"kind":"ended","number":1,"status":"raised","error":"' + b"x" * 12_193 + b'"}'), "at most 12192"),
        (struct.pack(">I", 19) + b'{"kind":"surprise"}', "surprise"),
        (struct.pack(">I", 25) + b'{"kind":"beat","more":1}\n', "more"),
        (struct.pack(">I", 33) + b'{"kind":"beat","content_bytes":2}', "a content of 0 bytes instead of 2"),
        (
            (struct.pack(">I", 0x80000000 | PART_BYTES) + b"x" * PART_BYTES) * (MAX_CONTENT_BYTES // PART_BYTES + 1),
            "a content of more than 16777216 bytes",
        ),
    ],
)
async def test_what_is_no_frame_ends_the_connection_once(pair: Pair, data: bytes, why: str):
    assert pair.first._transport is not None
    pair.first._transport.write(data)
    async with asyncio.timeout(10):
        await pair.ended.wait()

    assert len(pair.ends) == 1
    assert why in pair.ends[0]


async def test_the_end_of_the_other_side_is_no_error(pair: Pair):
    await pair.finish()

    assert pair.ends == [""]
    pair.second.send(Beat())
    await pair.second.send_content(Ended(number=1, status="ok"), b"x" * PART_BYTES)


def test_a_content_with_too_many_values_is_not_parsed():
    assert read_content(b"") is None
    assert read_content(b"[" + b"1," * 200_000 + b"1]") == [1] * 200_001
    for wrong in (b"[" + b"[]," * 250_000 + b"1]", b"[NaN]", b"{"):
        with pytest.raises(ValueError, match=r"250000|line 1"):
            read_content(wrong)


@pytest.mark.parametrize(
    ("data", "more"),
    [
        (b"[1,2,3]", False),
        (b'{"a":{"b":[1,2]}}', False),
        (b'["a,b,c,d,[{","\\",{["]', False),
        (b'["\\\\",1,2,3,4,5]', True),
        (b"[1,2,3,4,5]", True),
        (b'["","","","","",""]', True),
        (b"[[[[[]]]]]", True),
    ],
)
def test_values_are_counted_outside_of_texts(data: bytes, more: bool):
    json.loads(data)

    assert has_more_values(data, 4) is more
