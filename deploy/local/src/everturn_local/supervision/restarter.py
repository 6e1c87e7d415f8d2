"""Keeps one part alive: restarts and reports it when it dies, with growing delays."""

import asyncio
import signal
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from everturn.core.errors import EverturnError
from everturn_local.supervision.parts import Part

MAX_DEATHS = 32
WINDOW_S = 60.0
FIRST_DELAY_S = 0.2
MAX_DELAY_S = 10.0
T = TypeVar("T")


async def run_restarter(
    part: Part,
    *,
    is_on: Callable[[], bool],
    report: Callable[[str], None],
    on_restart: Callable[[], None] = lambda: None,
) -> None:
    """Run until cancelled, or until the part dies while `is_on()` is false. Errors of the part don't end it."""
    deaths: deque[float] = deque(maxlen=MAX_DEATHS)
    while True:
        exited = await _run_apart(part.wait_exit())
        if not is_on():
            return
        deaths.append(time.monotonic())
        delay_s = build_restart_delay_s(deaths, deaths[-1])
        report(f"{part.name} ended ({_render_end(exited)}); restarting it in {delay_s:.1f} s")
        await asyncio.sleep(delay_s)
        started = await _run_apart(part.start())
        if (error := started.exception()) is not None:
            report(f"{part.name} did not start: {_render_error(error)}")
        else:
            report(f"{part.name} is running again")
            on_restart()


def build_restart_delay_s(deaths: Sequence[float], now: float) -> float:
    """`deaths` are times (seconds) up to and including this one. The delay doubles with every death of the last minute.

    The limit bounds a part that can't start to six attempts a minute.
    """
    recent = sum(1 for death in deaths if now - death < WINDOW_S)
    return min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (recent - 1)) if recent else 0.0


async def _run_apart(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run it to its end as a task of its own: its exceptions must not end the restarter, which is not supervised."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task})
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    return task


def _render_end(exited: asyncio.Task[int]) -> str:
    error = exited.exception()
    return render_exit(exited.result()) if error is None else _render_error(error)


def _render_error(error: BaseException) -> str:
    """Our own errors and those of the system are self-explanatory; others get their type's name."""
    known = isinstance(error, EverturnError | OSError)
    return str(error) if known else f"{type(error).__name__}: {error}"


def render_exit(code: int) -> str:
    """An exit code as text; negative ones are signals."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
