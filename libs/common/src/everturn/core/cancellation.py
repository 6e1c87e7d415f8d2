"""Cancellation that is never lost, and waits for cancelled tasks that always end.

asyncio delivers a cancellation once. If code fails while it handles the cancellation, such as the rollback on a closed
connection, its error replaces the cancellation; a caller that retries on that error then waits again, and no second
cancellation follows. So all code that translates or retries errors of a driver runs under `keep_cancellation`. And code
that cancels a task waits for it with `Stragglers.end` or `end_tasks`, which cancel twice and then continue without it.

A thread can't be cancelled. Code that opens, locks or creates something in one uses `acquire_in_thread`.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog

from everturn.core.metrics import CANCELLATIONS_KEPT, STRAGGLERS

_log = structlog.get_logger(__name__)

GRACE_S = 5.0
"""How long a cancelled task can clean up before it is cancelled once more, and again after that."""
MAX_TASKS_DESCRIBED = 200
MAX_AWAITS_DESCRIBED = 40
"""Limits what `describe_tasks` writes into one log line: about 200 kB."""

CHECKS = 5
"""How many checks without an answer count as silence."""

T = TypeVar("T")


async def acquire_in_thread(acquire: Callable[[], T], release: Callable[[T], object]) -> T:
    """What `acquire` returns, which must be released: a lock, a file, a folder. It runs in a thread. Raises its errors.

    A thread goes on after its caller was cancelled. CancelledError is raised at once, and `release` gets what the
    thread acquires, in a thread as well. After this has returned, the caller is the one who must release it.
    """
    acquired: list[T] = []
    is_abandoned = threading.Event()

    def release_abandoned() -> None:
        # Called for the thread and for the cancelled task. Only one of them finds it in the list.
        try:
            value = acquired.pop()
        except IndexError:
            return
        release(value)

    def work() -> T:
        value = acquire()
        acquired.append(value)
        if is_abandoned.is_set():
            release_abandoned()
        return value

    try:
        return await asyncio.to_thread(work)
    except asyncio.CancelledError:
        is_abandoned.set()
        # Not awaited, and not here: a failing release must not replace the cancellation, nor a slow one block the loop.
        asyncio.get_running_loop().run_in_executor(None, release_abandoned)
        raise


@contextmanager
def keep_cancellation() -> Generator[None]:
    """Raise CancelledError instead of any outcome that replaced it.

    If the current task is cancelled inside the block, but the block ends by another error or by returning, the
    cancellation would be lost. A timeout inside the block undoes its own cancellation (`Task.uncancel`) and is not
    affected.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    except Exception as error:
        if task and task.cancelling() > before:
            CANCELLATIONS_KEPT.inc()
            raise asyncio.CancelledError from error
        raise
    if task and task.cancelling() > before:
        CANCELLATIONS_KEPT.inc()
        raise asyncio.CancelledError


def discard_errors(*tasks: asyncio.Task[Any]) -> None:
    """Mark the errors of tasks that have ended as read, because another one is raised: asyncio logs unread ones."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()


class Stragglers:
    """Owns tasks that continue despite their cancellation, so that no caller has to wait for them.

    Their results are discarded. Those that ignored two cancellations are logged and counted, and so is their end.
    """

    def __init__(self, *, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reported: set[asyncio.Task[Any]] = set()

    @property
    def count(self) -> int:
        """Number of tasks owned here that have not ended."""
        return len(self._tasks)

    async def end(self, *tasks: asyncio.Task[Any]) -> None:
        """Cancel the tasks and wait for their end, at most twice `grace_s`; the remaining ones become stragglers.

        The second cancellation is sent halfway, in case the first was lost. If this wait is itself cancelled, it ends
        at once: tasks that still run are owned here, with the rest of their time.
        """
        running = {task for task in tasks if not task.done()}
        for sent in (1, 2):
            for task in running:
                task.cancel()
            if not running:
                return
            try:
                _, running = await asyncio.wait(running, timeout=self._grace_s)
            except asyncio.CancelledError:
                for task in running:
                    self._own(task)
                    self._check_later(task, sent)
                raise
        for task in running:
            self._own(task)
            self._report(task)

    async def close(self, limit_s: float) -> None:
        """Cancel all stragglers once more, wait up to `limit_s` for their end, and log those that still run."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limit_s)
        for task in self._tasks:
            _log.error("Gave up on a task that ignores its cancellation", task=task.get_name())

    def _own(self, task: asyncio.Task[Any]) -> None:
        if not task.done() and task not in self._tasks:
            self._tasks.add(task)
            task.add_done_callback(self._drop)

    def _check_later(self, task: asyncio.Task[Any], sent: int) -> None:
        """Go on as `end` would have, for a task that was cancelled `sent` times."""
        if not task.done():
            asyncio.get_running_loop().call_later(self._grace_s, self._check, task, sent)

    def _check(self, task: asyncio.Task[Any], sent: int) -> None:
        if task.done():
            return
        if sent == 1:
            task.cancel()
            self._check_later(task, 2)
        else:
            self._report(task)

    def _report(self, task: asyncio.Task[Any]) -> None:
        if task in self._reported:
            return
        STRAGGLERS.inc()
        _log.error(
            "Left a task running that ignores its cancellation",
            task=task.get_name(),
            grace_s=self._grace_s,
            awaits=_describe_task(task),
        )
        self._reported.add(task)

    def _drop(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if task in self._reported or error is not None:
            self._reported.discard(task)
            _log.warning(
                "A task that ignored its cancellation ended", task=task.get_name(), error=repr(error) if error else None
            )


_PROCESS_STRAGGLERS = Stragglers()


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """`Stragglers.end` for callers without their own Stragglers: the process owns the tasks that do not end."""
    await _PROCESS_STRAGGLERS.end(*tasks)


def describe_tasks() -> list[str]:
    """One line for each task of the running loop: its name, and the functions it waits in with their modules and lines,
    outermost first."""
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    return [f"{task.get_name()}: {_describe_task(task)}" for task in tasks[:MAX_TASKS_DESCRIBED]]


def _describe_task(task: asyncio.Task[Any]) -> str:
    # Task.get_stack shows only the outermost frame of a suspended coroutine, so the chain of awaits is followed here.
    places: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(places) < MAX_AWAITS_DESCRIBED:
        prefix = next((p for p in ("cr", "gi", "ag") if hasattr(awaited, f"{p}_frame")), None)
        if prefix is None:
            places.append(type(awaited).__name__)
            break
        frame = getattr(awaited, f"{prefix}_frame")
        places.append(
            f"{frame.f_globals['__name__']}:{frame.f_lineno} {awaited.__qualname__}" if frame else awaited.__qualname__
        )
        awaited = getattr(awaited, "gi_yieldfrom" if prefix == "gi" else f"{prefix}_await")
    return " -> ".join(places) + (" (cancelling)" if task.cancelling() else "")


@asynccontextmanager
async def answered_within(limit_s: float) -> AsyncGenerator[None]:
    """Raise TimeoutError when there was no reply for `limit_s` during which this process could have read one.

    When an event loop was blocked for longer than an asyncio timeout, the timeout fires as soon as the loop resumes,
    although a reply can be waiting unread. So the limit is split into parts, and each counts once, however late its end
    was noticed: between two of them the loop reads what has arrived. The limit is exceeded only by as much as this
    process was blocked.
    """
    async with asyncio.timeout(None) as timeout:
        deadline = _ReplyDeadline(timeout, limit_s)
        try:
            yield
        finally:
            deadline.end()


class _ReplyDeadline:
    """Checks several times whether the wait has ended, and ends it at the last check."""

    def __init__(self, timeout: asyncio.Timeout, limit_s: float) -> None:
        self._timeout = timeout
        self._part_s = limit_s / CHECKS
        self._checks = 0
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(self._part_s, self._check)

    def _check(self) -> None:
        self._checks += 1
        if self._checks < CHECKS:
            self._next = self._loop.call_later(self._part_s, self._check)
        else:
            # Due in the next iteration of the loop, after everything read in this one is processed.
            self._timeout.reschedule(self._loop.time())

    def end(self) -> None:
        """The wait is over."""
        self._next.cancel()


@dataclass(frozen=True, slots=True)
class Ran(Generic[T]):
    """The work ended by itself."""

    value: T


@dataclass(frozen=True, slots=True)
class Stopped:
    """The work was cancelled. `why` is what the stop returned; `left_behind` means that the work still runs."""

    why: object = None
    left_behind: bool = False


async def run_until(
    stop: Coroutine[Any, Any, Any],
    work: Coroutine[Any, Any, T],
    *,
    stragglers: Stragglers | None = None,
    name: str | None = None,
) -> Ran[T] | Stopped:
    """Run `work`; when `stop` returns first, cancel it and wait for its end. Errors of either are raised.

    Work that completes while it is being cancelled counts as ended by itself, so its result is kept. The wait for
    cancelled work is bounded (`Stragglers.end`): work that ignores its cancellation is left to `stragglers`. `name` is
    the name of its task, for the log.
    """
    working, stopping = asyncio.create_task(work, name=name), asyncio.ensure_future(stop)
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await (stragglers.end if stragglers else end_tasks)(working, stopping)
    if not working.done():
        return Stopped(stopping.result(), left_behind=True)
    if working.cancelled():
        return Stopped(None if stopping.cancelled() else stopping.result())
    return Ran(working.result())
