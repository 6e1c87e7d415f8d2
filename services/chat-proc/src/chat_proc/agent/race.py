"""Running one thing until it ends or something else happens first."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ran(Generic[T]):
    """The work ended by itself."""

    value: T


@dataclass(frozen=True, slots=True)
class Stopped:
    """The work was cancelled and has wound up."""


async def run_until(stop: Coroutine[Any, Any, Any], work: Coroutine[Any, Any, T]) -> Ran[T] | Stopped:
    """Run `work`; when `stop` returns first, cancel it and wait for its end. An error of either is raised.

    Work that ends while it is being cancelled counts as ended by itself: its result is not thrown away.
    """
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop)
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.wait({working, stopping})
    if working.cancelled():
        if not stopping.cancelled():
            stopping.result()
        return Stopped()
    return Ran(working.result())
