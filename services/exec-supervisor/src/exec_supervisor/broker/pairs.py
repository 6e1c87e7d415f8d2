"""All pairs of this broker: their number, their names, and the guarantee that each is ended exactly once."""

import asyncio
import contextlib
import itertools
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final

import structlog

from everturn.core.errors import Conflict, NotFound
from everturn.core.loops import guarded
from everturn.execution.broker_messages import MAX_LISTED, BrokerRefusal, PairList, PairState, PairSummary
from everturn.execution.messages import LimitName, UidRange
from everturn.execution.profiles import ExecutionProfile, Profiles
from exec_supervisor.broker.engine import EngineDown, ImageMissing, NoCapacity, PairEngine, PairPlan, StartTimedOut
from exec_supervisor.broker.events import EventWatch
from exec_supervisor.broker.metrics import BrokerMetrics
from exec_supervisor.broker.pair import BootedPair, Pair

_log = structlog.stdlib.get_logger()

PAIR_LIFETIME_S: Final = 2 * 3600
"""An older pair is ended in any case: pairs are warm for half an hour at most, and the rest is far more than a run's
limit."""

SLOT_WAIT_S: Final = 10.0
MAX_REMEMBERED: Final = 1000


class UnknownProfile(NotFound):
    """The operator has no such profile."""


class UnknownPair(NotFound):
    """There is no such pair."""


class Busy(Conflict):
    """All pairs are in use."""


class Pairs:
    """Holds every pair from before anything of it is created until all of it is removed."""

    def __init__(
        self,
        engine: PairEngine,
        watch: EventWatch,
        profiles: Profiles,
        group: asyncio.TaskGroup,
        *,
        max_pairs: int,
        uids: UidRange,
        metrics: BrokerMetrics,
        clock: Callable[[], float] = time.time,
        slot_wait_s: float = SLOT_WAIT_S,
    ) -> None:
        self._engine = engine
        self._watch = watch
        self._profiles = profiles
        self._group = group
        self._metrics = metrics
        metrics.count_pairs_by(self.count)
        self._clock = clock
        self._slot_wait_s = slot_wait_s
        self._uids = uids
        self._uid_numbers = itertools.count(secrets.randbelow(uids.count))
        self._slots = asyncio.Semaphore(max_pairs)
        self._pairs: dict[str, Pair] = {}
        self._endings: dict[str, asyncio.Task[None]] = {}
        self._ended: OrderedDict[str, tuple[LimitName, ...] | None] = OrderedDict()

    @property
    def names(self) -> frozenset[str]:
        """The names of all pairs that may have resources in the engine."""
        return frozenset(pair.name for pair in self._pairs.values())

    @property
    def has_room(self) -> bool:
        """Whether one more pair can be created now without waiting."""
        return not self._slots.locked()

    def get_profile(self, name: str) -> ExecutionProfile:
        """Raises UnknownProfile."""
        if name not in self._profiles:
            raise UnknownProfile(name[:80])
        return self._profiles[name]

    async def boot(self, profile_name: str, run_id: str = "") -> BootedPair:
        """Create a pair once there is room. Raises Busy, UnknownProfile, EngineDown, EngineRefused, StartFailed."""
        profile = self.get_profile(profile_name)
        await self._acquire_slot()
        pair = self._add(profile_name, profile, run_id)
        try:
            with self._metrics.boot_s.time():
                booted = await pair.boot()
        except BaseException as error:
            self.end(pair, force=True)
            self._metrics.failures.labels(_name_reason(error)).inc()
            raise
        pair.state = "started" if run_id else "warm"
        return booted

    def find(self, pair_id: str) -> Pair:
        """Raises UnknownPair, also for one that has ended."""
        if pair_id not in self._pairs:
            raise UnknownPair
        return self._pairs[pair_id]

    def discard(self, warm: BootedPair) -> None:
        """Start to end a warm pair that no run has used."""
        self.end(warm.pair, force=True)

    def count(self, state: PairState) -> int:
        """The number of pairs in a state. The metrics page calls it in a thread, so it counts a copy."""
        return sum(pair.state == state for pair in self._pairs.copy().values())

    def end(self, pair: Pair, *, force: bool = False) -> "asyncio.Future[None]":
        """Start to end a pair; the future is done when it has ended. A repeated call returns the same ending."""
        if pair.pair_id not in self._pairs:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ended.set_result(None)
            return ended
        if pair.pair_id not in self._endings:
            self._endings[pair.pair_id] = self._group.create_task(self._end(pair, force))
        return self._endings[pair.pair_id]

    async def wait_for_end(self, pair_id: str, *, force: bool) -> tuple[LimitName, ...]:
        """End a pair if it has not ended, and return the limits that the engine enforced. Raises UnknownPair,
        EngineDown."""
        if pair_id not in self._ended:
            await asyncio.shield(self.end(self.find(pair_id), force=force))
        hits = self._ended[pair_id]
        if hits is None:
            raise EngineDown("the rest of the pair will be removed when it is available again")
        return hits

    async def end_all(self) -> None:
        """End every pair and wait for it."""
        endings = [self.end(pair) for pair in self._pairs.values()]
        if endings:
            await asyncio.wait(endings)

    def end_expired(self) -> None:
        """Start to end the pairs that have expired."""
        for pair in self._pairs.values():
            if self._clock() >= pair.plan.expires_s:
                _log.warning("Ending an expired pair", pair=pair.name, run=pair.run_id)
                self.end(pair, force=True)

    def list(self, labels: Mapping[str, str]) -> PairList:
        """The pairs with these labels: `run`, `profile`, `state`. Another label matches none."""
        found = [pair for pair in self._pairs.values() if all(_label(pair, key) == labels[key] for key in labels)]
        now = self._clock()
        summaries = tuple(
            PairSummary(pair.run_id, pair.plan.profile_name, pair.state, max(0, int(now - pair.created_s)))
            for pair in found[:MAX_LISTED]
        )
        return PairList(summaries, len(found))

    async def _acquire_slot(self) -> None:
        try:
            with self._metrics.wait_s.time():
                async with asyncio.timeout(self._slot_wait_s):
                    await self._slots.acquire()
        except TimeoutError as error:
            self._metrics.failures.labels("busy").inc()
            raise Busy from error

    def _add(self, profile_name: str, profile: ExecutionProfile, run_id: str) -> Pair:
        now = self._clock()
        name = secrets.token_hex(8)
        plan = PairPlan(name, profile_name, profile, run_id, int(now) + PAIR_LIFETIME_S, self._find_unused_uid())
        pair = Pair(plan, secrets.token_urlsafe(24), self._engine, self._watch.watch(name), now)
        self._pairs[pair.pair_id] = pair
        return pair

    def _find_unused_uid(self) -> int:
        """The next unused user of the range, which has at least as many users as there can be pairs."""
        used = {pair.plan.executor_uid for pair in self._pairs.values()}
        while (uid := self._uids.first + next(self._uid_numbers) % self._uids.count) in used:
            pass
        return uid

    async def _end(self, pair: Pair, force: bool) -> None:
        clean = False
        try:
            with guarded("pair_end", pair=pair.name):
                clean = await pair.end(force=force)
        finally:
            self._ended[pair.pair_id] = pair.hits if clean else None
            while len(self._ended) > MAX_REMEMBERED:
                self._ended.popitem(last=False)
            self._watch.forget(pair.name)
            del self._pairs[pair.pair_id], self._endings[pair.pair_id]
            self._slots.release()
            _log.info("Removed a pair", pair=pair.name, run=pair.run_id, hits=pair.hits, stderr=pair.errors)


@contextlib.asynccontextmanager
async def open_pairs(
    engine: PairEngine,
    watch: EventWatch,
    profiles: Profiles,
    *,
    max_pairs: int,
    uids: UidRange,
    metrics: BrokerMetrics,
    slot_wait_s: float = SLOT_WAIT_S,
) -> AsyncGenerator[Pairs]:
    """Open pairs that have all ended when the block is left."""
    async with asyncio.TaskGroup() as group:
        pairs = Pairs(
            engine,
            watch,
            profiles,
            group,
            max_pairs=max_pairs,
            uids=uids,
            metrics=metrics,
            slot_wait_s=slot_wait_s,
        )
        try:
            yield pairs
        finally:
            await pairs.end_all()


def build_refusal(error: BaseException) -> BrokerRefusal:
    """The refusal that a caller gets for a failure."""
    match error:
        case UnknownProfile():
            return BrokerRefusal("unknown_profile", str(error))
        case UnknownPair():
            return BrokerRefusal("unknown_pair", str(error))
        case Busy() | NoCapacity():
            return BrokerRefusal("busy", str(error)[:4000])
        case EngineDown():
            return BrokerRefusal("engine_down", str(error))
        case ImageMissing():
            return BrokerRefusal("image_missing", str(error)[:4000])
        case StartTimedOut():
            return BrokerRefusal("start_timeout", str(error)[:4000])
        case _:
            return BrokerRefusal("start_failed", str(error)[:4000])


def _name_reason(error: BaseException) -> str:
    """The metric label: the code that the caller gets, unless the call was cancelled."""
    return "cancelled" if isinstance(error, asyncio.CancelledError) else build_refusal(error).code


def _label(pair: Pair, key: str) -> str | None:
    return {"run": pair.run_id, "profile": pair.plan.profile_name, "state": pair.state}.get(key)
