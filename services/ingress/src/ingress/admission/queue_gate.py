"""Checks for room in the queue before anything is stored.

The room of a tenant on a lane is checked first, then the room of all. A rejected caller gets a time that is reserved
for this request, which its Idempotency-Key identifies.
"""

import asyncio
import contextlib
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from everturn.core.cancellation import answered_within
from everturn.core.errors import Unavailable
from everturn.core.identity import Lane, Principal, lane_of
from everturn.events.stream import WireMemory, WireUse
from everturn.limits.token_buckets import SECOND_US
from everturn.limits.waiting_rooms import MAX_WAIT_US, Entry, RoomLoad, Visitor, WaitingRooms, most_of
from everturn.queue.ports import Doorbells, Presences, Queue, QueueDepth, WorkerPresence
from everturn.turns.inbox import IdempotencyKey
from ingress.admission.limits import hash_key, strongest_role
from ingress.admission.metrics import IngressMetrics
from ingress.errors import ProblemError, too_many, unavailable

# The capacity of the live workers: how many turns run at once, and how long one takes.

FLEET_KEEP_S = 1.0
"""The maximum age of the known workers; they report every 5 s."""
STALE_S = 5.0
"""How long the last known workers are used while the wire does not answer."""
REST_S = 0.5
"""How long a wire that did not answer is not queried again, so that requests meanwhile don't wait for its timeout."""
GUESSED_TURN_S = 10.0
"""Used while no worker has ended a turn yet."""


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """All live workers together."""

    slots: int
    turn_s: float
    user_running_max: int | None = None
    """Turns of one user that can run while others wait: the smallest value that a worker reports, None if none does."""

    @property
    def interval_us(self) -> int:
        """Microseconds between two turns that leave the queue, while all slots are busy."""
        return max(1, int(self.turn_s / max(1, self.slots) * SECOND_US))


def build_fleet(workers: tuple[WorkerPresence, ...]) -> WorkerPool:
    """Sum up the workers, weighted by their slots."""
    slots = sum(worker.slots for worker in workers)
    told = [(worker.slots, worker.turn_s) for worker in workers if worker.turn_s is not None]
    running = [worker.user_running_max for worker in workers if worker.user_running_max is not None]
    weight = sum(weight for weight, _ in told)
    turn_s = sum(weight * turn_s for weight, turn_s in told) / weight if weight else GUESSED_TURN_S
    return WorkerPool(slots, turn_s, min(running, default=None))


class WorkerPoolWatch:
    """Loads the workers at most once a second, however many callers need them."""

    def __init__(self, presences: Presences, *, monotonic: Callable[[], float]) -> None:
        self._presences = presences
        self._monotonic = monotonic
        self._fleet = WorkerPool(0, GUESSED_TURN_S)
        self._failure: str | None = None
        self._ask_at = self._known_at = -math.inf
        self._asking = asyncio.Lock()

    async def load(self) -> WorkerPool:
        """Raises Unavailable after at most 250 ms if nothing is known, and then for half a second without a query."""
        async with self._asking:
            if self._monotonic() >= self._ask_at:
                await self._ask()
        if self._failure is not None:
            raise Unavailable(self._failure)
        return self._fleet

    async def _ask(self) -> None:
        try:
            self._fleet, self._failure = build_fleet(await self._presences.load_all()), None
            self._known_at = self._monotonic()
        except Unavailable as error:
            if self._monotonic() - self._known_at > STALE_S:
                self._failure = str(error)
        self._ask_at = self._monotonic() + (REST_S if self._failure is not None else FLEET_KEEP_S)


# The depth of the queue for a tenant on a lane: the last count, plus what this process has admitted since. The waiting
# room adds what other processes have admitted since.

KEEP_S = 0.25
"""The maximum age of a counted depth."""
COUNT_LIMIT_S = 1.0
MAX_COUNTED = 1_000


@dataclass(frozen=True, slots=True)
class QueueView:
    """A depth, and the age of its count."""

    depth: QueueDepth
    age_us: int


QueueKey = tuple[str, Lane]
"""A tenant and a lane."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """A depth, and the moment before its count began: the count includes what was stored before then."""

    began_at: float
    depth: QueueDepth


_NEVER = _Counted(-math.inf, QueueDepth(0, 0, 0))


class QueueDepthCache:
    """Owns the counts and the admissions since. Call `leave` or `settle` after each `enter`."""

    def __init__(self, queue: Queue, *, monotonic: Callable[[], float]) -> None:
        self._queue = queue
        self._monotonic = monotonic
        self._counted: OrderedDict[QueueKey, _Counted] = OrderedDict()
        self._counting = asyncio.Lock()
        self._entered: Counter[QueueKey] = Counter()
        self._settled: deque[tuple[float, QueueKey]] = deque()

    async def load(self, key: QueueKey) -> QueueView:
        """Concurrent requests share one count. Raises Unavailable after at most a second."""
        try:
            async with answered_within(COUNT_LIMIT_S), self._counting:
                if self._monotonic() - self._counted.get(key, _NEVER).began_at > KEEP_S:
                    began_at = self._monotonic()
                    self._keep(key, _Counted(began_at, await self._queue.load_depth(*key)))
        except TimeoutError as error:
            raise Unavailable("The queue could not be counted in time.") from error
        age_s = self._monotonic() - self._counted.get(key, _NEVER).began_at
        return QueueView(self._with_own(key), int(age_s * SECOND_US))

    def enter(self, key: QueueKey) -> None:
        """Count an admission before it is stored, so that the next request does not find its place free."""
        self._entered[key] += 1

    def leave(self, key: QueueKey) -> None:
        """Remove an admission that was not stored."""
        self._entered[key] -= 1
        if not self._entered[key]:
            del self._entered[key]

    def settle(self, key: QueueKey) -> None:
        """Record that an admission was stored: counts that begin from now on include it."""
        self.leave(key)
        now = self._monotonic()
        while self._settled and self._settled[0][0] < now - KEEP_S - COUNT_LIMIT_S:
            self._settled.popleft()
        self._settled.append((now, key))

    def _with_own(self, key: QueueKey) -> QueueDepth:
        counted = self._counted.get(key, _NEVER)
        waiting, of_tenant = self._entered.total(), self._entered[key]
        for settled_at, settled in reversed(self._settled):
            if settled_at < counted.began_at:
                break
            waiting, of_tenant = waiting + 1, of_tenant + (settled == key)
        depth = counted.depth
        return QueueDepth(depth.waiting + waiting, depth.of_tenant + of_tenant, max(depth.tenants, int(of_tenant > 0)))

    def _keep(self, key: QueueKey, counted: _Counted) -> None:
        self._counted[key] = counted
        self._counted.move_to_end(key)
        if len(self._counted) > MAX_COUNTED:
            self._counted.popitem(last=False)


CHECK_LIMIT_S = 0.5
"""How long a signal waits for the wire; a rejection must arrive within 2 s, including checks and rate limits."""
ASK_LIMIT_S = 1.25
"""How long new work waits for all it must know; notifying the other room takes 250 ms more."""
ALL = "all"
"""The waiting room of all tenants."""
MEMORY_FULL, MEMORY_SCARCE = 0.9, 0.7
"""Shares of Redis' memory above which nothing new is accepted, and above which users who hold much of it must wait."""
USER_SCARCE_BYTES = 1 << 20
"""How much one user's events can hold while memory is scarce."""
MEMORY_RETRY_S = 60
"""Events of ended turns are deleted after a minute."""
UNATTENDED_INTERVAL_US = 30 * SECOND_US
"""The return of a worker can't be predicted; callers rejected meanwhile retry half a minute apart."""


@dataclass(frozen=True, slots=True)
class QueueCaps:
    """How many turns can wait: in all, in all while no worker is live, and of one tenant on one lane."""

    total: int
    unattended: int
    tenant: int


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The refusal of one room, and the other room, which must be notified."""

    reason: str
    problem: ProblemError
    entry: Entry
    other_room: str
    other_load: RoomLoad


class WorkGate:
    """Backpressure from the queue's real depth and the live workers."""

    def __init__(
        self,
        *,
        doorbells: Doorbells,
        queue: Queue,
        rooms: WaitingRooms,
        memory: WireMemory,
        fleet: WorkerPoolWatch,
        caps: QueueCaps,
        metrics: IngressMetrics,
        monotonic: Callable[[], float],
    ) -> None:
        self._doorbells = doorbells
        self._places = QueueDepthCache(queue, monotonic=monotonic)
        self._rooms = rooms
        self._memory = memory
        self._fleet = fleet
        self._caps = caps
        self._metrics = metrics

    async def admit(self, principal: Principal, key: IdempotencyKey | None, *, new_work: bool) -> "Admission":
        """Admit new work or a signal. Raises problems with a retry time: 503 while the wire is down or, for new work,
        when the queue is full; 429 when the tenant's share is full. Takes at most 1.5 s.

        An admission is counted here until it is settled or left.
        """
        visitor = _visitor(principal, key)
        try:
            if new_work:
                return await self._enter(principal, visitor)
            await self._doorbells.check(limit_s=CHECK_LIMIT_S)
        except (Unavailable, TimeoutError) as error:
            raise self._refused(principal, "wire", unavailable("The queue does not respond.")) from error
        return Admission(None, principal, visitor)

    async def keep_tenant_place(self, admission: "Admission") -> int:
        """Reserve a place for a caller whom the transaction itself rejected. Returns the seconds to wait, 1 if nothing
        is known. Takes at most as long as `admit`."""
        principal = admission.principal
        try:
            async with answered_within(ASK_LIMIT_S):
                fleet, view = await self._load(principal)
                own = self._tenant_load(fleet, view.depth)
                # Only the transaction counts what other processes admitted just before, so assume that the room is
                # full.
                full = replace(own, depth=max(own.depth, most_of(own.room)))
                entry = await self._rooms.enter(_room_of(principal), admission.visitor, full)
        except (Unavailable, TimeoutError):
            return 1
        await self._tell_other(ALL, self._total_load(fleet, view), admission.visitor, entry)
        return _whole(entry.wait_s)

    async def _enter(self, principal: Principal, visitor: Visitor) -> "Admission":
        async with answered_within(ASK_LIMIT_S):
            self._check_memory(principal, await self._memory.load_use(principal))
            fleet, view = await self._load(principal)
            # Counted before the rooms are checked: concurrent requests must not all be admitted by one count.
            admission = Admission(self._places, principal, visitor)
            try:
                refusal = await self._ask_rooms(principal, visitor, fleet, view)
            except BaseException:
                admission.leave()
                raise
        if refusal is None:
            return admission
        admission.leave()
        await self._tell_other(refusal.other_room, refusal.other_load, visitor, refusal.entry)
        raise self._refused(principal, refusal.reason, refusal.problem)

    def _check_memory(self, principal: Principal, use: WireUse) -> None:
        """Reject before Redis is full, and first those users whose events fill it."""
        if use.share >= MEMORY_SCARCE and use.of_user >= USER_SCARCE_BYTES:
            text = "The events of your turns use too much memory. They are removed a minute after the turns have ended."
            raise self._refused(principal, "user_memory", too_many(text, retry_after_s=MEMORY_RETRY_S))
        if use.share >= MEMORY_FULL:
            text = "The memory for events is nearly full."
            raise self._refused(principal, "memory", unavailable(text, retry_after_s=MEMORY_RETRY_S))

    async def _load(self, principal: Principal) -> tuple[WorkerPool, QueueView]:
        return await self._fleet.load(), await self._places.load(_key_of(principal))

    async def _ask_rooms(
        self, principal: Principal, visitor: Visitor, fleet: WorkerPool, view: QueueView
    ) -> _Refusal | None:
        own, total = self._tenant_load(fleet, view.depth), self._total_load(fleet, view)
        if _is_crowded(own):
            entry = await self._rooms.enter(_room_of(principal), visitor, own)
            if not entry.admitted:
                text = f"{own.depth} turns of this tenant are already waiting."
                problem = too_many(text, retry_after_s=_whole(entry.wait_s))
                return _Refusal("tenant", problem, entry, ALL, total)
        entry = await self._rooms.enter(ALL, visitor, total)
        if entry.admitted:
            return None
        text = f"{view.depth.waiting} turns are already waiting{'' if fleet.slots else ', and no worker is running'}."
        problem = unavailable(text, retry_after_s=_whole(entry.wait_s))
        return _Refusal("queue" if fleet.slots else "unattended", problem, entry, _room_of(principal), own)

    async def _tell_other(self, room: str, load: RoomLoad, visitor: Visitor, entry: Entry) -> None:
        """Reserve the wait that one room gave in the other room too. A caller with the longest wait may have no place
        at all."""
        # The wait is valid without it: a pass only spares the caller a second refusal.
        with contextlib.suppress(Unavailable):
            if _is_crowded(load) and entry.wait_s < MAX_WAIT_US / SECOND_US:
                await self._rooms.keep(room, visitor, entry.wait_s)

    def _total_load(self, fleet: WorkerPool, view: QueueView) -> RoomLoad:
        room = self._caps.total if fleet.slots else min(self._caps.total, self._caps.unattended)
        return RoomLoad(view.depth.waiting, room, _interval_us(fleet), view.age_us)

    def _tenant_load(self, fleet: WorkerPool, depth: QueueDepth) -> RoomLoad:
        # Doorbells of tenants with a full share alternate, so a tenant's queue drains at a fraction of the total rate.
        return RoomLoad(depth.of_tenant, self._caps.tenant, _interval_us(fleet) * max(1, depth.tenants))

    def _refused(self, principal: Principal, reason: str, refusal: ProblemError) -> ProblemError:
        self._metrics.refusals.labels(reason=reason, role=strongest_role(principal.roles).value).inc()
        return refusal


class Admission:
    """One admitted request. New work holds a place in the queue until it is stored or abandoned."""

    def __init__(self, places: QueueDepthCache | None, principal: Principal, visitor: Visitor) -> None:
        self.principal = principal
        self.visitor = visitor
        self._places = places
        self._key = _key_of(principal)
        if places is not None:
            places.enter(self._key)

    def settle(self) -> None:
        """Record that it is stored: the queue itself counts it from now on."""
        if self._places is not None:
            self._places.settle(self._key)
        self._places = None

    def leave(self) -> None:
        """Give the place up if it was not stored; does nothing otherwise."""
        if self._places is not None:
            self._places.leave(self._key)
        self._places = None


def _key_of(principal: Principal) -> QueueKey:
    return principal.tenant, lane_of(principal.roles)


def _room_of(principal: Principal) -> str:
    return hash_key("tenant", principal.tenant, lane_of(principal.roles).value)


def _visitor(principal: Principal, key: IdempotencyKey | None) -> Visitor:
    caller = hash_key(principal.limited_as)
    return Visitor(caller, hash_key(key.route, key.key) if key else "")


def _is_crowded(load: RoomLoad) -> bool:
    """Whether at least half of the room is used; below that no caller has to wait."""
    return load.depth >= load.room // 2


def _interval_us(fleet: WorkerPool) -> int:
    return fleet.interval_us if fleet.slots else UNATTENDED_INTERVAL_US


def _whole(wait_s: float) -> int:
    return max(1, math.ceil(wait_s))
