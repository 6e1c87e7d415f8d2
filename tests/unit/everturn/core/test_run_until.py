import asyncio
import contextlib

import pytest

from everturn.core.cancellation import Ran, Stopped, Stragglers, run_until


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


async def test_a_stop_has_a_reason() -> None:
    async def stop() -> str:
        return "late"

    assert await run_until(stop(), never()) == Stopped("late")


async def test_work_that_ignores_its_cancellation_is_left_behind() -> None:
    may_end, stragglers = asyncio.Event(), Stragglers(grace_s=0.01)

    async def work() -> None:
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_end.wait()

    async def stop() -> str:
        return "late"

    assert await run_until(stop(), work(), stragglers=stragglers) == Stopped("late", left_behind=True)

    may_end.set()
    await stragglers.close(1.0)
    assert stragglers.count == 0


async def test_a_stop_that_ignores_cancellation_does_not_delay_the_result() -> None:
    may_end, stragglers = asyncio.Event(), Stragglers(grace_s=0.01)

    async def stop() -> None:
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_end.wait()

    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await run_until(stop(), work(), stragglers=stragglers) == Ran(7)

    may_end.set()
    await stragglers.close(1.0)


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
