"""One read serves every reader that came before it began."""

import asyncio

import pytest

from ingress.stream.rows import SharedRead


class Source:
    """Counts reads; each waits for its gate."""

    def __init__(self) -> None:
        self.reads = 0
        self.gate = asyncio.Event()

    async def read(self) -> int:
        self.reads += 1
        number = self.reads
        await self.gate.wait()
        if number == self.failing:
            raise RuntimeError("failed")
        return number

    failing = 0


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_reader_that_comes_during_a_read_shares_the_next_one() -> None:
    source = Source()
    shared = SharedRead(source.read)

    async with asyncio.TaskGroup() as group:
        first = group.create_task(shared.get())
        await settle()
        later = [group.create_task(shared.get()) for _ in range(10)]
        await settle()
        source.gate.set()

    assert first.result() == 1
    assert {task.result() for task in later} == {2}
    assert source.reads == 2


async def test_a_value_is_not_kept_for_later_readers() -> None:
    source = Source()
    source.gate.set()
    shared = SharedRead(source.read)

    assert await shared.get() == 1
    assert await shared.get() == 2


async def test_a_failing_read_fails_for_one_and_the_next_one_tries_again() -> None:
    source = Source()
    source.failing = 1
    shared = SharedRead(source.read)

    first, second = asyncio.create_task(shared.get()), asyncio.create_task(shared.get())
    await settle()
    source.gate.set()

    with pytest.raises(RuntimeError):
        await first
    assert await second == 2


async def test_a_cancelled_reader_does_not_cancel_the_others() -> None:
    source = Source()
    shared = SharedRead(source.read)
    first, second = asyncio.create_task(shared.get()), asyncio.create_task(shared.get())
    await settle()

    first.cancel()
    await settle()
    source.gate.set()

    assert await second == 2
