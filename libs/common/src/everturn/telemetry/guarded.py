"""The one edge of process-wide loops: an unexpected error is logged and counted, and the loop goes on.

One row, event or reply that this process cannot read must not end the work for all others. What a loop expects, such as
a server that is away, it still handles itself; this is for everything else. `CancelledError` always passes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final

import structlog

from everturn.telemetry.metrics import LOOP_ERRORS

FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 5.0
"""Bounds both how long a loop stays down after its cause is gone, and how often a broken one logs."""

_log = structlog.get_logger(__name__)


class Guard:
    """What came of a guarded block."""

    def __init__(self) -> None:
        self.error: Exception | None = None


@contextmanager
def guarded(loop: str, *, passing: tuple[type[Exception], ...] = (), **context: object) -> Generator[Guard]:
    """Log and count an error of the block, and go on behind it. `passing` are errors that the caller handles.

    `loop` names the loop in the log and the metric, `context` is added to the log line only.
    """
    guard = Guard()
    try:
        yield guard
    except passing:
        raise
    except Exception as error:
        if _is_cancelled():
            # The error of a clean-up may have replaced the cancellation. Going on would make the task immortal.
            raise asyncio.CancelledError from error
        guard.error = error
        LOOP_ERRORS.labels(loop).inc()
        _log.exception("loop_error", loop=loop, **context)


async def run_guarded(
    loop: str,
    run: Callable[[], Awaitable[None]],
    *,
    first_pause_s: float = FIRST_PAUSE_S,
    max_pause_s: float = MAX_PAUSE_S,
) -> None:
    """Run until `run` returns. After an error it is run again, with growing pauses while it fails at once each time."""
    clock = asyncio.get_running_loop()
    pause_s = first_pause_s
    while True:
        began_s = clock.time()
        with guarded(loop) as guard:
            await run()
        if guard.error is None:
            return
        if clock.time() - began_s > max_pause_s:
            pause_s = first_pause_s
        await asyncio.sleep(pause_s)
        pause_s = min(max_pause_s, 2 * pause_s)


def _is_cancelled() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        # Outside of an event loop, in a thread, nothing can be cancelled.
        return False
    return task is not None and task.cancelling() > 0
