import asyncio
import re
import threading
from collections.abc import Awaitable, Callable

import pytest
from helpers.waiting import wait_until
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from everturn.core.cancellation import Stragglers, acquire_in_thread, describe_tasks, keep_cancellation
from everturn.core.errors import Unavailable


async def fail_while_cancelled() -> None:
    """Cleaning up fails, and its error replaces the cancellation."""
    try:
        await asyncio.Event().wait()
    finally:
        raise Unavailable("The connection is closed.")


async def swallow_cancellation() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return


@pytest.mark.parametrize("body", [fail_while_cancelled, swallow_cancellation])
async def test_a_cancellation_that_was_replaced_is_raised_again(body: Callable[[], Awaitable[None]]) -> None:
    async def guarded() -> None:
        with keep_cancellation():
            await body()

    task = asyncio.create_task(guarded())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_other_errors_pass_unchanged() -> None:
    with pytest.raises(Unavailable), keep_cancellation():
        raise Unavailable


async def test_a_cleanup_error_after_an_earlier_cancellation_is_raised() -> None:
    """A task that already handles its cancellation may still catch the errors of its own cleanup."""
    caught: list[Unavailable] = []

    async def clean_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                with keep_cancellation():
                    raise Unavailable
            except Unavailable as error:
                caught.append(error)

    task = asyncio.create_task(clean_up())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(caught) == 1


async def test_a_timeout_inside_is_not_a_cancellation() -> None:
    with pytest.raises(TimeoutError), keep_cancellation():
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_a_timeout_outside_becomes_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            with keep_cancellation():
                await fail_while_cancelled()


class Deaf:
    """Work that ignores its cancellations until it may end, or until there were `heeds` of them."""

    def __init__(self, *, heeds: int | None = None) -> None:
        self.may_end = asyncio.Event()
        self.cancellations = 0
        self._heeds = heeds

    async def run(self) -> str:
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.cancellations += 1
                if self.cancellations == self._heeds:
                    raise
        return "too late"


async def start(deaf: Deaf) -> asyncio.Task[str]:
    task = asyncio.create_task(deaf.run())
    await asyncio.sleep(0)
    return task


async def test_a_lost_cancellation_is_sent_again() -> None:
    stragglers, task = Stragglers(grace_s=0.01), await start(Deaf(heeds=2))

    await stragglers.end(task)

    assert task.cancelled()
    assert stragglers.count == 0


async def test_work_that_ignores_two_cancellations_is_left_behind_until_it_ends() -> None:
    deaf, stragglers = Deaf(), Stragglers(grace_s=0.01)
    task = await start(deaf)

    await stragglers.end(task)

    assert (stragglers.count, deaf.cancellations) == (1, 2)
    deaf.may_end.set()
    await stragglers.close(1.0)
    assert stragglers.count == 0


async def test_a_cancelled_wait_hands_over_the_work_at_once() -> None:
    deaf, stragglers = Deaf(), Stragglers(grace_s=60.0)
    task = await start(deaf)
    ending = asyncio.create_task(stragglers.end(task))
    await asyncio.sleep(0)

    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending

    assert stragglers.count == 1
    deaf.may_end.set()
    await stragglers.close(1.0)


def count_stragglers() -> float | None:
    return REGISTRY.get_sample_value("everturn_stragglers_total")


async def cancel_the_wait_for(task: asyncio.Task[str], stragglers: Stragglers) -> None:
    ending = asyncio.create_task(stragglers.end(task))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending


async def clean_up_shortly() -> str:
    try:
        return await asyncio.sleep(60, "never")
    finally:
        await asyncio.sleep(0.01)


async def test_work_that_ends_after_a_cancelled_wait_is_no_straggler() -> None:
    task = asyncio.create_task(clean_up_shortly())
    await asyncio.sleep(0)
    stragglers, counted = Stragglers(grace_s=60.0), count_stragglers()

    with capture_logs() as lines:
        await cancel_the_wait_for(task, stragglers)
        await asyncio.wait([task], timeout=10)
        await asyncio.sleep(0)

    assert task.cancelled()
    assert (stragglers.count, count_stragglers(), lines) == (0, counted, [])


async def test_after_a_cancelled_wait_the_second_cancellation_is_still_sent() -> None:
    stragglers, task = Stragglers(grace_s=0.01), await start(Deaf(heeds=2))

    await cancel_the_wait_for(task, stragglers)

    assert not task.done()
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()


async def test_work_that_goes_on_after_a_cancelled_wait_is_reported() -> None:
    deaf, stragglers = Deaf(), Stragglers(grace_s=0.01)
    task = await start(deaf)

    with capture_logs() as lines:
        await cancel_the_wait_for(task, stragglers)
        await wait_until(lambda: bool(lines))
        deaf.may_end.set()
        await asyncio.wait([task], timeout=10)
        await asyncio.sleep(0)

    assert deaf.cancellations == 2
    assert [line["event"] for line in lines] == [
        "Left a task running that ignores its cancellation",
        "A task that ignored its cancellation ended",
    ]


async def test_closing_does_not_wait_for_ever() -> None:
    deaf, stragglers = Deaf(), Stragglers(grace_s=0.0)
    await stragglers.end(await start(deaf))

    await stragglers.close(0.01)

    assert stragglers.count == 1
    deaf.may_end.set()
    await stragglers.close(1.0)


async def test_tasks_are_described_by_the_modules_and_lines_they_wait_in() -> None:
    task = asyncio.create_task(fail_while_cancelled(), name="stuck")
    await asyncio.sleep(0)

    (line,) = [line for line in describe_tasks() if line.startswith("stuck: ")]

    assert re.fullmatch(
        rf"stuck: {re.escape(__name__)}:\d+ fail_while_cancelled -> asyncio\.locks:\d+ Event\.wait -> .*", line
    )
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class SlowLock:
    """A resource whose acquisition waits in its thread until `go_on` is set."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.acquired = threading.Event(), threading.Event(), threading.Event()
        self.held: list[str] = []
        self.released: list[str] = []

    def acquire(self) -> str:
        self.begun.set()
        assert self.go_on.wait(20)
        self.held.append("lock")
        self.acquired.set()
        return "lock"

    def release(self, lock: str) -> None:
        self.held.remove(lock)
        self.released.append(lock)


async def test_what_a_thread_acquires_belongs_to_its_caller() -> None:
    lock = SlowLock()
    lock.go_on.set()

    assert await acquire_in_thread(lock.acquire, lock.release) == "lock"

    assert (lock.held, lock.released) == (["lock"], [])


@pytest.mark.parametrize("cancellations", [1, 2])
async def test_what_a_thread_acquires_for_a_cancelled_caller_is_released(cancellations: int) -> None:
    lock = SlowLock()
    task = asyncio.create_task(acquire_in_thread(lock.acquire, lock.release))
    await asyncio.to_thread(lock.begun.wait, 20)

    for _ in range(cancellations):
        task.cancel()
    await asyncio.wait({task}, timeout=10)

    assert task.cancelled(), "it does not wait for its thread"
    lock.go_on.set()
    await wait_until(lambda: lock.released == ["lock"])
    assert not lock.held


async def test_a_cancellation_that_comes_with_the_result_releases_it() -> None:
    lock = SlowLock()
    task = asyncio.create_task(acquire_in_thread(lock.acquire, lock.release))
    await asyncio.to_thread(lock.begun.wait, 20)
    lock.go_on.set()
    # The loop does not run until the thread holds the lock, so it hears of both at once.
    assert lock.acquired.wait(20)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: lock.released == ["lock"])


async def test_a_failing_release_does_not_replace_the_cancellation() -> None:
    begun, go_on, tried = threading.Event(), threading.Event(), threading.Event()

    def acquire() -> None:
        begun.set()
        assert go_on.wait(20)

    def fail(_: None) -> None:
        tried.set()
        raise OSError("It can't be released.")

    task = asyncio.create_task(acquire_in_thread(acquire, fail))
    await asyncio.to_thread(begun.wait, 20)
    task.cancel()
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(tried.wait, 20)


async def test_the_error_of_an_acquisition_is_raised() -> None:
    def fail() -> str:
        raise OSError("There is no space left.")

    with pytest.raises(OSError, match="no space"):
        await acquire_in_thread(fail, lambda _: None)
