"""The error boundary of process-wide loops: an unexpected error is logged and counted, and the loop continues.

One row, event or reply that this process cannot read must not stop the work for all others. A loop still handles the
errors it expects, such as an unreachable server; this is for all others. `CancelledError` always passes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager
from typing import Final

import structlog

from everturn.core.errors import Unavailable
from everturn.core.metrics import LOOP_ERRORS

_log = structlog.get_logger(__name__)

FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 5.0
"""Limits both how long a loop pauses after the cause is gone, and how often a broken one logs."""
FAILING_S: Final = 60.0
"""Readiness names a loop that has only failed for this long."""
QUIET_S: Final = 330.0
"""After this time without an error, a loop has recovered even if it reported no success: longer than the longest pause
between two iterations of any loop."""


class LoopHealth:
    """The guarded loops of this process that only fail. Loops are named in code, so there are few."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failing: dict[str, tuple[float, float, str]] = {}
        """First and last of consecutive failures, by the monotonic clock, and the type of the last error."""

    @property
    def failing(self) -> Collection[str]:
        """The loops whose last iteration failed."""
        return self._failing.keys()

    def note_error(self, loop: str, error: Exception) -> None:
        now_s = self._monotonic()
        first_s, last_s, _ = self._failing.get(loop, (now_s, now_s, ""))
        if now_s - last_s > QUIET_S:
            first_s = now_s
        self._failing[loop] = first_s, now_s, type(error).__name__

    def note_success(self, loop: str) -> None:
        self._failing.pop(loop, None)

    async def check(self) -> None:
        """Raise Unavailable with the names of the loops that have failed for FAILING_S without a success."""
        now_s = self._monotonic()
        failing = [
            f"{loop} for {last_s - first_s:.0f} s ({kind})"
            for loop, (first_s, last_s, kind) in sorted(self._failing.items())
            if last_s - first_s >= FAILING_S and now_s - last_s <= QUIET_S
        ]
        if failing:
            raise Unavailable(f"These loops keep failing: {', '.join(failing)}. The log has the errors.")


LOOPS: Final = LoopHealth()
"""The health of the loops of this process."""


class Guard:
    """The result of a guarded block."""

    def __init__(self) -> None:
        self.error: Exception | None = None


@contextmanager
def guarded(
    loop: str, *, passing: tuple[type[Exception], ...] = (), health: LoopHealth | None = LOOPS, **context: object
) -> Generator[Guard]:
    """Log and count an error of the block, and continue after it. `passing` are errors that the caller handles.

    `loop` names the loop in the log and the metric, `context` is added to the log line only. `health` is None if
    the block is about one of many things, so that its failing is no reason for the process not to be ready.
    """
    guard = Guard()
    try:
        yield guard
    except passing:
        raise
    except Exception as error:
        if _is_cancelled():
            # An error during clean-up may have replaced the cancellation. Continuing would make the task uncancellable.
            raise asyncio.CancelledError from error
        guard.error = error
        LOOP_ERRORS.labels(loop).inc()
        if health is not None:
            health.note_error(loop, error)
        _log.exception("An iteration of a loop failed; the loop continues", loop=loop, **context)
    else:
        if health is not None:
            health.note_success(loop)


async def run_guarded(
    loop: str,
    run: Callable[[], Awaitable[None]],
    *,
    first_pause_s: float = FIRST_PAUSE_S,
    max_pause_s: float = MAX_PAUSE_S,
    health: LoopHealth = LOOPS,
) -> None:
    """Run until `run` returns. After an error run it again, with growing pauses while it fails quickly."""
    clock = asyncio.get_running_loop()
    pause_s = first_pause_s
    while True:
        began_s = clock.time()
        with guarded(loop, health=health) as guard:
            await run()
        if guard.error is None:
            return
        if clock.time() - began_s > max_pause_s:
            pause_s = first_pause_s
            health.note_success(loop)
        await asyncio.sleep(pause_s)
        pause_s = min(max_pause_s, 2 * pause_s)


def _is_cancelled() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        # In a thread without an event loop nothing can be cancelled.
        return False
    return task is not None and task.cancelling() > 0
