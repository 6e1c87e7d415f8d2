"""Frames between a worker and a host: contents in parts, messages between them, limits, and what is no frame."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from everturn_sdk.protocol import (
    MAX_CONTENT_BYTES,
    MAX_MESSAGE_BYTES,
    PART_BYTES,
    TO_WORKER,
    Beat,
    Connection,
    Ended,
    FrameError,
    Log,
    ToWorker,
    encode_message,
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


async def wait_for(pair: Pair, count: int) -> None:
    async with asyncio.timeout(10):
        while len(pair.got) < count:  # noqa: ASYNC110 - the connection calls no event
            await asyncio.sleep(0.005)


async def test_a_content_of_many_parts_arrives_whole_among_other_messages(pair: Pair):
    content = bytes(range(256)) * (5 * PART_BYTES // 256) + b"rest"
    sending = asyncio.create_task(pair.first.send_content(Ended(number=1, status="ok"), content))
    while not sending.done():
        pair.first.send(Beat())
        await asyncio.sleep(0)
    await wait_for(pair, 2)

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


async def test_what_is_too_long_is_refused_by_the_sender(pair: Pair):
    with pytest.raises(FrameError, match="at most 262144"):
        pair.first.send(Log(number=1, text="x" * MAX_MESSAGE_BYTES))
    with pytest.raises(FrameError, match="at most 16777216"):
        await pair.first.send_content(Ended(number=1, status="ok"), b"x" * (MAX_CONTENT_BYTES + 1))
    with pytest.raises(FrameError, match="JSON"):
        encode_message(Log(number=1, text="\ud800"))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (struct.pack(">I", MAX_MESSAGE_BYTES + 1), "a frame of 262145 bytes"),
        (struct.pack(">I", 0x80000000 | (PART_BYTES + 1)), "a frame of 262145 bytes"),
        (struct.pack(">I", 3) + b"{}x", "Invalid JSON"),
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
