"""Warm pairs: booted ahead, unbound, given to one run each, and replaced when they die or grow old.

They are refilled one at a time, so that this takes at most one start's share of the machine from running programs. Only
a profile whose last boot failed is booted beside others: a boot that waits for an image would hold them up.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from everturn.core.errors import Invalid
from everturn.execution.profiles import Profiles
from exec_supervisor.broker.engine import EngineDown, EngineRefused, StartFailed, StartTimedOut
from exec_supervisor.broker.metrics import BrokerMetrics
from exec_supervisor.broker.pair import BootedPair
from exec_supervisor.broker.pairs import Busy, Pairs

_log = structlog.stdlib.get_logger()

MAX_AGE_S: Final = 1800.0
HEAD_START_S: Final = 0.1
"""The next boot begins after this delay, so that the run that got a warm pair starts first: a boot briefly needs both
cores."""
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
_ROOM_CHECK_S: Final = 1.0


@dataclass(slots=True)
class _WarmPairs:
    """The warm pairs of one profile, oldest first, and the failures of its last boots and pairs. `is_failing` means
    that the last boot waited in vain, such as for an image, and `is_booting` that it is repeated now, beside others."""

    wanted: int
    ready: deque["_Warm"] = field(default_factory=deque["_Warm"])
    failures: int = 0
    not_before_s: float = 0.0
    is_failing: bool = False
    is_booting: bool = False

    @property
    def lacks(self) -> bool:
        return len(self.ready) < self.wanted and not self.is_booting


@dataclass(frozen=True, slots=True)
class _Warm:
    booted: BootedPair
    since_s: float


class Pool:
    """Provides pairs, warm ones if available. `run` keeps it filled."""

    def __init__(
        self,
        maker: Pairs,
        profiles: Profiles,
        metrics: BrokerMetrics,
        *,
        max_age_s: float = MAX_AGE_S,
        head_start_s: float = HEAD_START_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._maker = maker
        self._metrics = metrics
        self._max_age_s = max_age_s
        self._head_start_s = head_start_s
        self._clock = clock
        self._warm_pairs: Mapping[str, _WarmPairs] = {
            name: _WarmPairs(profile.warm) for name, profile in profiles.items() if profile.warm
        }
        self._changed = asyncio.Event()

    async def acquire(self, profile_name: str, run_id: str) -> tuple[BootedPair, bool]:
        """Return a booted pair for this run only, and whether it was warm; a warm one needs no engine call.

        Raises Busy, UnknownProfile, EngineDown, EngineRefused, StartFailed.
        """
        self._maker.get_profile(profile_name)
        warm = self._try_acquire_warm(profile_name)
        if warm is not None:
            warm.pair.assign(run_id)
            self._metrics.starts.labels("warm").inc()
            return warm, True
        booted = await self._maker.boot(profile_name, run_id)
        self._metrics.starts.labels("cold").inc()
        return booted, False

    async def run(self) -> None:
        """Refill until cancelled."""
        async with asyncio.TaskGroup() as retries:
            while True:
                self._changed.clear()
                self._discard_unfit()
                name = self._try_choose()
                if name is None or not self._maker.has_room:
                    await self._wait(_ROOM_CHECK_S if name else self._next_check_s())
                elif self._warm_pairs[name].is_failing:
                    self._warm_pairs[name].is_booting = True
                    retries.create_task(self._retry(name))
                    # It takes its place before the next look at the room.
                    await asyncio.sleep(0)
                else:
                    await self._refill(name)

    def _try_acquire_warm(self, profile_name: str) -> BootedPair | None:
        pairs = self._warm_pairs.get(profile_name)
        while pairs is not None and pairs.ready:
            warm = pairs.ready.popleft().booted
            self._changed.set()
            if not warm.pair.is_unusable:
                pairs.failures = 0
                pairs.not_before_s = self._clock() + self._head_start_s
                return warm
            self._lose(pairs, warm, "died")
        return None

    def _discard_unfit(self) -> None:
        oldest_s = self._clock() - self._max_age_s
        for pairs in self._warm_pairs.values():
            for warm in [*pairs.ready]:
                if warm.booted.pair.is_unusable:
                    pairs.ready.remove(warm)
                    self._lose(pairs, warm.booted, "died")
                elif warm.since_s <= oldest_s:
                    pairs.ready.remove(warm)
                    self._metrics.warm_lost.labels("old").inc()
                    self._maker.discard(warm.booted)

    def _lose(self, pairs: _WarmPairs, warm: BootedPair, reason: str) -> None:
        """Record that a warm pair ended by itself. If they all do, new boots must back off."""
        self._metrics.warm_lost.labels(reason).inc()
        self._maker.discard(warm)
        self._note_failure(pairs)

    def _try_choose(self) -> str | None:
        now = self._clock()
        lacking = [name for name, pairs in self._find_lacking().items() if pairs.not_before_s <= now]
        return min(lacking, key=lambda name: len(self._warm_pairs[name].ready), default=None)

    def _find_lacking(self) -> Mapping[str, _WarmPairs]:
        """Those that can be refilled now or after their pauses. One failing profile at a time is tried beside the
        others: a machine that is busy makes them all fail."""
        is_retrying = any(pairs.is_booting for pairs in self._warm_pairs.values())
        return {
            name: pairs
            for name, pairs in self._warm_pairs.items()
            if pairs.lacks and not (pairs.is_failing and is_retrying)
        }

    async def _retry(self, name: str) -> None:
        try:
            await self._refill(name)
        finally:
            self._warm_pairs[name].is_booting = False
            self._changed.set()

    async def _refill(self, name: str) -> None:
        pairs = self._warm_pairs[name]
        try:
            booted = await self._maker.boot(name)
        except (EngineDown, EngineRefused, StartFailed, Busy) as error:
            self._note_failure(pairs)
            pairs.is_failing = isinstance(error, StartTimedOut)
            _log.warning("Could not boot a warm pair", profile=name, failures=pairs.failures, detail=str(error))
        else:
            pairs.is_failing = False
            pairs.ready.append(_Warm(booted, self._clock()))
            booted.pair.call_when_unusable(self._changed.set)

    def _note_failure(self, pairs: _WarmPairs) -> None:
        pairs.not_before_s = self._clock() + min(FIRST_PAUSE_S * 2**pairs.failures, LONGEST_PAUSE_S)
        pairs.failures = min(pairs.failures + 1, 10)

    def _next_check_s(self) -> float | None:
        """Seconds until a pause ends or a pair is too old; None when only an event can change anything."""
        times = [pairs.not_before_s for pairs in self._find_lacking().values()]
        times += [pairs.ready[0].since_s + self._max_age_s for pairs in self._warm_pairs.values() if pairs.ready]
        return max(0.0, min(times) - self._clock()) if times else None

    async def _wait(self, limit_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._changed.wait()


def check_warm_fits(profiles: Profiles, max_pairs: int) -> None:
    """Raise Invalid if the warm pairs leave no room for a run without one."""
    warm = sum(profile.warm for profile in profiles.values())
    if warm >= max_pairs:
        raise Invalid(
            f"EXECUTION_PROFILES keeps {warm} pairs warm, so BROKER_MAX_PAIRS={max_pairs} must be at least {warm + 1}."
        )
