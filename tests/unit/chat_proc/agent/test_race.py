import asyncio

import pytest

from chat_proc.agent.race import Ran, Stopped, Stragglers, run_until


async def never() -> None:
    await asyncio.Event().wait()


async def test_work_that_ends_first_gives_its_value() -> None:
    async def work() -> int:
        return 7

    assert await run_until(never(), work()) == Ran(7)


async def test_a_stop_cancels_the_work_and_waits_for_its_end() -> None:
    wound_up = False

    async def work() -> None:
        nonlocal wound_up
        try:
            await never()
        finally:
            await asyncio.sleep(0)
            wound_up = True

    async def stop() -> None:
        await asyncio.sleep(0)

    assert await run_until(stop(), work()) == Stopped()
    assert wound_up


async def test_work_that_ends_while_it_is_cancelled_counts_as_ended() -> None:
    async def work() -> str:
        try:
            await never()
        except asyncio.CancelledError:
            return "kept"
        return ""

    async def stop() -> None:
        await asyncio.sleep(0)

    assert await run_until(stop(), work()) == Ran("kept")


async def test_a_stop_says_why() -> None:
    async def stop() -> str:
        return "late"

    assert await run_until(stop(), never()) == Stopped("late")


class Deaf:
    """Work that ignores every cancellation until it may end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.cancellations = 0

    async def run(self) -> str:
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.cancellations += 1
        return "too late"


async def soon() -> None:
    await asyncio.sleep(0)


async def test_work_that_ignores_its_cancellation_is_left_behind_after_a_while() -> None:
    deaf, stragglers = Deaf(), Stragglers(grace_s=0.01)

    assert await run_until(soon(), deaf.run(), stragglers=stragglers) == Stopped()

    assert stragglers.count == 1
    deaf.may_end.set()
    await stragglers.close(1.0)
    assert stragglers.count == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancelled_race_does_not_wait_for_work_that_ignores_its_cancellation() -> None:
    deaf, stragglers = Deaf(), Stragglers(grace_s=0.01)
    race = asyncio.ensure_future(run_until(never(), deaf.run(), stragglers=stragglers))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    race.cancel()
    with pytest.raises(asyncio.CancelledError):
        await race

    assert stragglers.count == 1
    deaf.may_end.set()
    await stragglers.close(1.0)


async def test_who_does_not_end_at_all_holds_up_nobody_for_ever() -> None:
    deaf, stragglers = Deaf(), Stragglers(grace_s=0.0)
    await run_until(soon(), deaf.run(), stragglers=stragglers)

    await stragglers.close(0.01)

    assert (stragglers.count, deaf.cancellations) == (1, 2)
    deaf.may_end.set()
    await stragglers.close(1.0)


async def test_the_error_of_a_straggler_reaches_nobody() -> None:
    deaf, stragglers = Deaf(), Stragglers(grace_s=0.0)

    async def breaks() -> None:
        await deaf.run()
        raise ValueError("late")

    await run_until(soon(), breaks(), stragglers=stragglers)
    deaf.may_end.set()
    await stragglers.close(1.0)

    assert stragglers.count == 0


async def test_an_error_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await run_until(never(), work())


async def test_an_error_of_the_stop_is_raised_after_the_work_was_cancelled() -> None:
    async def stop() -> None:
        raise LookupError("deaf")

    with pytest.raises(LookupError):
        await run_until(stop(), never())


async def test_a_cancelled_race_leaves_no_task_behind() -> None:
    race = asyncio.ensure_future(run_until(never(), never()))
    await asyncio.sleep(0)
    before = asyncio.all_tasks()

    race.cancel()
    with pytest.raises(asyncio.CancelledError):
        await race

    assert len(before) == 4
    assert asyncio.all_tasks() == {asyncio.current_task()}
