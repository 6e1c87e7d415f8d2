"""Lines that a person types."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from everturn_client.terminal.lines import MAX_PENDING_LINES, LineReader


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)


async def test_lines_come_one_by_one_and_then_the_end(pipe: tuple[int, int]) -> None:
    read, write = pipe
    with LineReader(read) as lines:
        os.write(write, "eins\r\nzw\xfc".encode())
        first = await lines.next()
        os.write(write, b"ei\n\nlast")
        os.close(write)

        assert [first, await lines.next(), await lines.next(), await lines.next()] == ["eins", "zw\xfcei", "", "last"]
        assert [await lines.next(), await lines.next()] == [None, None]


async def test_reading_stops_while_too_many_lines_wait_and_none_is_lost(pipe: tuple[int, int]) -> None:
    read, write = pipe
    count = MAX_PENDING_LINES * 40
    whole = b"".join(b"%04d %s\n" % (number, b"x" * 30) for number in range(count))
    writing = asyncio.ensure_future(asyncio.to_thread(write_all, write, whole))
    with LineReader(read) as lines:
        read_lines = [await lines.next() for _ in range(count)]
        await writing

        assert [int((line or "-1")[:4]) for line in read_lines] == list(range(count))
        assert await lines.next() is None


def write_all(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


async def test_waiting_for_a_line_can_be_given_up_without_losing_it(pipe: tuple[int, int]) -> None:
    read, write = pipe
    with LineReader(read) as lines:
        waiting = asyncio.ensure_future(lines.next())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        os.write(write, b"kept\n")

        assert await lines.next() == "kept"
    os.close(write)
