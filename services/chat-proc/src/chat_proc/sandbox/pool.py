"""A pool of pre-booted supervisors by profile: a run takes one, and another is booted in its place."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from chat_proc.sandbox.launching import Launcher
from chat_proc.sandbox.supervised import BootedSupervisor, SupervisorFailed
from everturn.core.metrics import SANDBOX_BOOTS_FAILED, SANDBOXES_DISCARDED, SANDBOXES_TAKEN

_log = structlog.get_logger(__name__)

MAX_AGE_S: Final = 900.0
"""A supervisor that has waited this long is replaced: a cleaner of temporary folders may have removed its files."""

POLL_EVERY_S: Final = 5.0
_WARM_RUN_NAME: Final = "warm"
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    supervisor: BootedSupervisor
    owned: contextlib.AsyncExitStack
    since_s: float


class WarmPool:
    """A launcher that keeps supervisors of another one booted. Each is used once and never returned.

    `sizes` is the number per profile. The pool is filled only while `run` runs; otherwise every take is a cold boot.
    `on_full` is called each time that it finds nothing to boot.
    """

    keeps_warm = True

    def __init__(
        self,
        launcher: Launcher,
        sizes: Mapping[str, int],
        *,
        max_age_s: float = MAX_AGE_S,
        now_s: Callable[[], float] = time.monotonic,
        on_full: Callable[[], None] = lambda: None,
    ) -> None:
        self._launcher = launcher
        self._sizes = {profile: size for profile, size in sizes.items() if size > 0}
        self._waiting: dict[str, deque[_Waiting]] = {profile: deque() for profile in self._sizes}
        self._max_age_s = max_age_s
        self._now_s = now_s
        self._changed = asyncio.Event()
        self._on_full = on_full

    @contextlib.asynccontextmanager
    async def take(self, profile: str, run_name: str) -> AsyncGenerator[BootedSupervisor]:
        waiting = await self._try_take(profile)
        SANDBOXES_TAKEN.labels("cold" if waiting is None else "warm").inc()
        if waiting is None:
            async with self._launcher.take(profile, run_name) as supervisor:
                yield supervisor
            return
        async with waiting.owned:
            yield waiting.supervisor

    async def run(self) -> None:
        """Keep the pool filled until cancelled; waiting supervisors are ended then."""
        pause_s = _FIRST_PAUSE_S
        try:
            while True:
                self._changed.clear()
                await self._discard_unfit()
                if await self._try_fill():
                    pause_s = _FIRST_PAUSE_S
                    if not self._changed.is_set():
                        self._on_full()
                    await self._wait_for_change(POLL_EVERY_S)
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        finally:
            await self._end_all()

    async def _try_take(self, profile: str) -> _Waiting | None:
        """A usable supervisor, or None. Those that died while waiting are discarded."""
        queue = self._waiting.get(profile, deque[_Waiting]())
        while queue:
            waiting = queue.popleft()
            self._changed.set()
            if waiting.supervisor.is_waiting():
                return waiting
            await self._discard(profile, waiting, "died")
        return None

    async def _try_fill(self) -> bool:
        """Boot missing supervisors, one after the other; returns False if one did not boot."""
        for profile, size in self._sizes.items():
            while len(self._waiting[profile]) < size:
                try:
                    self._waiting[profile].append(await self._boot(profile))
                except (OSError, SupervisorFailed) as error:
                    SANDBOX_BOOTS_FAILED.inc()
                    _log.warning("Could not boot a warm sandbox", profile=profile, error=str(error))
                    return False
        return True

    async def _boot(self, profile: str) -> _Waiting:
        async with contextlib.AsyncExitStack() as stack:
            supervisor = await stack.enter_async_context(self._launcher.take(profile, _WARM_RUN_NAME))
            return _Waiting(supervisor, stack.pop_all(), self._now_s())

    async def _discard_unfit(self) -> None:
        for profile, queue in self._waiting.items():
            for waiting in tuple(queue):
                reason = self._find_fault(waiting)
                # Ending one takes time, and a run may have taken the next one meanwhile.
                if reason and waiting in queue:
                    queue.remove(waiting)
                    await self._discard(profile, waiting, reason)

    def _find_fault(self, waiting: _Waiting) -> str:
        if not waiting.supervisor.is_waiting():
            return "died"
        return "old" if self._now_s() - waiting.since_s > self._max_age_s else ""

    async def _discard(self, profile: str, waiting: _Waiting, reason: str) -> None:
        SANDBOXES_DISCARDED.labels(reason).inc()
        _log.info("Discarded a warm sandbox", profile=profile, reason=reason)
        await waiting.owned.aclose()

    async def _wait_for_change(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    async def _end_all(self) -> None:
        """End all concurrently: each can take the 2 s that a supervisor has to end."""
        left = [waiting for queue in self._waiting.values() for waiting in queue]
        for queue in self._waiting.values():
            queue.clear()
        await asyncio.gather(*(waiting.owned.aclose() for waiting in left))
