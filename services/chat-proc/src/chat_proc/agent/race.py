"""Running one thing until it ends or something else happens first."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from everturn.cancellation import Stragglers, end_tasks

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ran(Generic[T]):
    """The work ended by itself."""

    value: T


@dataclass(frozen=True, slots=True)
class Stopped:
    """The work was cancelled. `why` is what the stop returned; `left_behind` means that the work still goes on."""

    why: object = None
    left_behind: bool = False


async def run_until(
    stop: Coroutine[Any, Any, Any],
    work: Coroutine[Any, Any, T],
    *,
    stragglers: Stragglers | None = None,
    name: str | None = None,
) -> Ran[T] | Stopped:
    """Run `work`; when `stop` returns first, cancel it and wait for its end. An error of either is raised.

    Work that ends while it is being cancelled counts as ended by itself: its result is not thrown away. The wait for
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
