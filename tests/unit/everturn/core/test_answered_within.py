"""A blocked event loop does not count as silence: it first reads what arrived meanwhile."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import pytest

from everturn.core.cancellation import answered_within

LIMIT_S = 0.25
HELD_UP_S = 0.6
Ends = tuple[asyncio.StreamReader, socket.socket]


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    """Where answers are read, and where they are given."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    yield reader, theirs
    writer.close()
    theirs.close()


async def test_an_answer_during_a_blocked_loop_is_read(ends: Ends) -> None:
    reader, theirs = ends

    def answer_and_hold_up() -> None:
        theirs.send(b"yes\n")
        time.sleep(HELD_UP_S)

    asyncio.get_running_loop().call_soon(answer_and_hold_up)
    async with answered_within(LIMIT_S):
        answer = await reader.readline()

    assert answer == b"yes\n"


async def test_a_blocked_loop_still_reads_a_reply_in_parts(ends: Ends) -> None:
    reader, theirs = ends
    parts = iter(b"yes\n")

    def answer_and_hold_up() -> None:
        part = next(parts, None)
        if part is not None:
            theirs.send(bytes([part]))
            time.sleep(HELD_UP_S / 4)
            asyncio.get_running_loop().call_soon(answer_and_hold_up)

    asyncio.get_running_loop().call_soon(answer_and_hold_up)
    async with answered_within(LIMIT_S):
        answer = await reader.readline()

    assert answer == b"yes\n"


async def test_silence_ends_the_wait_even_for_a_blocked_loop(ends: Ends) -> None:
    reader, _ = ends
    loop = asyncio.get_running_loop()
    loop.call_soon(time.sleep, HELD_UP_S)
    began_at = loop.time()

    with pytest.raises(TimeoutError):
        async with answered_within(LIMIT_S):
            await reader.readline()

    assert loop.time() - began_at >= HELD_UP_S


async def test_nothing_ends_a_wait_that_is_over() -> None:
    async with answered_within(0.01):
        pass
    await asyncio.sleep(0.05)


async def test_a_waiting_caller_can_be_cancelled(ends: Ends) -> None:
    reader, _ = ends

    async def wait() -> None:
        async with answered_within(60):
            await reader.readline()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})

    assert waiting.cancelled()
