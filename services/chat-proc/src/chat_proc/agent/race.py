"""Running one thing until it ends or something else happens first."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog

from everturn.telemetry.metrics import STRAGGLERS

_log = structlog.get_logger(__name__)
T = TypeVar("T")

GRACE_S = 5.0
"""How long cancelled work may wind up before everything else goes on without it."""


@dataclass(frozen=True, slots=True)
class Ran(Generic[T]):
    """The work ended by itself."""

    value: T


@dataclass(frozen=True, slots=True)
class Stopped:
    """The work was cancelled, and has wound up or was left behind. `why` is what the stop returned."""

    why: object = None


class Stragglers:
    """Owns tasks that go on although they were cancelled, so that nothing has to wait for them.

    What such a task still does or returns reaches nobody; its end is logged.
    """

    def __init__(self, *, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def count(self) -> int:
        return len(self._tasks)

    async def wind_up(self, task: asyncio.Task[Any]) -> None:
        """Wait for a cancelled task as long as it may take; after that it is ours, also when the wait is cancelled."""
        try:
            await asyncio.wait({task}, timeout=self._grace_s)
        finally:
            if not task.done():
                self._take(task)

    async def close(self, limit_s: float) -> None:
        """Cancel them all once more, wait that long for their end, and say who does not come to one."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limit_s)
        for task in self._tasks:
            _log.error("straggler_given_up", task=task.get_name())

    def _take(self, task: asyncio.Task[Any]) -> None:
        STRAGGLERS.inc()
        _log.error("straggler_left_behind", task=task.get_name(), grace_s=self._grace_s)
        self._tasks.add(task)
        task.add_done_callback(self._drop)

    def _drop(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        _log.warning("straggler_ended", task=task.get_name(), error=repr(error) if error else None)


async def run_until(
    stop: Coroutine[Any, Any, Any],
    work: Coroutine[Any, Any, T],
    *,
    stragglers: Stragglers | None = None,
    name: str | None = None,
) -> Ran[T] | Stopped:
    """Run `work`; when `stop` returns first, cancel it and wait for its end. An error of either is raised.

    Work that ends while it is being cancelled counts as ended by itself: its result is not thrown away. Work that may
    ignore its cancellation, such as a tool's, is waited for by `stragglers`, which has a limit; `name` is for the log.
    """
    working, stopping = asyncio.create_task(work, name=name), asyncio.ensure_future(stop)
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.wait({stopping})
        if stragglers is None:
            await asyncio.wait({working})
        else:
            await stragglers.wind_up(working)
    if not working.done():
        return Stopped(stopping.result())
    if working.cancelled():
        return Stopped(None if stopping.cancelled() else stopping.result())
    return Ran(working.result())
