"""Checks for room in the queue before anything is stored: cheaply and a little late, so that a full queue costs no
transaction. The transaction that accepts a turn checks exactly (everturn.turns.postgres_inbox).
"""

import asyncio
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from everturn.core.cancellation import answered_within
from everturn.core.errors import Unavailable
from everturn.core.identity import Lane, Principal, lane_of
from everturn.events.stream import StreamMemory
from everturn.queue.model import Doorbells, Presences, Queue, QueueCaps, QueueDepth, QueueFull, WorkerPresence
from ingress.admission.limits import strongest_role
from ingress.errors import ProblemError, too_many, unavailable
from ingress.metrics import IngressMetrics

WORKERS_KEEP_S = 1.0
"""The maximum age of the known workers; they report every 5 s."""
STALE_S = 5.0
"""How long the last known workers are used while Redis does not answer."""
PAUSE_S = 0.5
"""How long Redis is left alone after it did not answer, so that requests meanwhile don't wait for its timeout."""
GUESSED_TURN_S = 10.0
"""Used while no worker has ended a turn yet."""

KEEP_S = 0.25
"""The maximum age of a counted depth."""
COUNT_LIMIT_S = 1.0
MAX_COUNTED = 1_000

QueueKey = tuple[str, Lane]
"""A tenant and a lane."""

CHECK_LIMIT_S = 0.5
"""How long a request waits for Redis; a rejection must arrive within 2 s, including checks and rate limits."""
ASK_LIMIT_S = 1.25
"""How long new work waits for all it must know."""
MEMORY_FULL, MEMORY_SCARCE = 0.9, 0.7
"""Shares of Redis' memory above which nothing new is accepted, and above which users who hold much of it must wait."""
USER_SCARCE_BYTES = 1 << 20
"""How much one user's events can hold while memory is scarce."""
MEMORY_KEEP_S = 0.25
"""How long memory that is not scarce counts as such. Meanwhile it grows by far less than the space above."""
MEMORY_RETRY_S = 60
"""Events of ended turns are deleted after a minute."""
RETRY_MIN_S: Final = 5.0
RETRY_MAX_S: Final = 15.0
"""The bounds of the shortest `Retry-After` of a full queue. The longest is twice as long: our clients wait up to 30 s
without asking their user."""


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """All live workers together."""

    slots: int
    turn_s: float
    user_running_max: int | None = None
    """Turns of one user that can run while others wait: the smallest value that a worker reports, None if none does."""


def build_worker_pool(workers: tuple[WorkerPresence, ...]) -> WorkerPool:
    """Sum up the workers, weighted by their slots."""
    slots = sum(worker.slots for worker in workers)
    reported = [(worker.slots, worker.turn_s) for worker in workers if worker.turn_s is not None]
    running = [worker.user_running_max for worker in workers if worker.user_running_max is not None]
    weight = sum(weight for weight, _ in reported)
    turn_s = sum(weight * turn_s for weight, turn_s in reported) / weight if weight else GUESSED_TURN_S
    return WorkerPool(slots, turn_s, min(running, default=None))


class WorkerPoolWatch:
    """Loads the workers at most once a second, however many callers need them."""

    def __init__(self, presences: Presences, *, monotonic: Callable[[], float]) -> None:
        self._presences = presences
        self._monotonic = monotonic
        self._pool = WorkerPool(0, GUESSED_TURN_S)
        self._failure: str | None = None
        self._reload_at = self._known_at = -math.inf
        self._reload_lock = asyncio.Lock()

    async def load(self) -> WorkerPool:
        """Raises Unavailable after at most 250 ms if nothing is known, and then for half a second without a query."""
        async with self._reload_lock:
            if self._monotonic() >= self._reload_at:
                await self._reload()
        if self._failure is not None:
            raise Unavailable(self._failure)
        return self._pool

    async def _reload(self) -> None:
        try:
            self._pool, self._failure = build_worker_pool(await self._presences.load_all()), None
            self._known_at = self._monotonic()
        except Unavailable as error:
            if self._monotonic() - self._known_at > STALE_S:
                self._failure = str(error)
        self._reload_at = self._monotonic() + (PAUSE_S if self._failure is not None else WORKERS_KEEP_S)


@dataclass(frozen=True, slots=True)
class _Counted:
    """A depth, and the moment before its count began: the count includes what was stored before then."""

    began_at: float
    depth: QueueDepth


_NEVER = _Counted(-math.inf, QueueDepth(0, 0))


class QueueDepthCache:
    """Owns the counts and the admissions since. Call `leave` or `settle` after each `enter`.

    A turn that is stored just before a count, and settled just after its begin, is counted twice until the next count:
    the last places of a queue can be refused too early, but none is given away twice.
    """

    def __init__(self, queue: Queue, *, monotonic: Callable[[], float]) -> None:
        self._queue = queue
        self._monotonic = monotonic
        self._counted: OrderedDict[QueueKey, _Counted] = OrderedDict()
        self._counting = asyncio.Lock()
        self._entered: Counter[QueueKey] = Counter()
        self._settled: deque[tuple[float, QueueKey]] = deque()

    async def load(self, key: QueueKey) -> QueueDepth:
        """Concurrent requests share one count. Raises Unavailable after at most a second."""
        try:
            async with answered_within(COUNT_LIMIT_S), self._counting:
                if self._monotonic() - self._counted.get(key, _NEVER).began_at > KEEP_S:
                    began_at = self._monotonic()
                    self._keep(key, _Counted(began_at, await self._queue.load_depth(*key)))
        except TimeoutError as error:
            raise Unavailable("The queue could not be counted in time.") from error
        return self._with_own(key)

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
        return QueueDepth(depth.waiting + waiting, depth.of_tenant + of_tenant)

    def _keep(self, key: QueueKey, counted: _Counted) -> None:
        self._counted[key] = counted
        self._counted.move_to_end(key)
        if len(self._counted) > MAX_COUNTED:
            self._counted.popitem(last=False)


class WorkGate:
    """Backpressure from the queue's real depth and the memory of Redis."""

    def __init__(
        self,
        *,
        doorbells: Doorbells,
        queue: Queue,
        memory: StreamMemory,
        workers: WorkerPoolWatch,
        caps: QueueCaps,
        metrics: IngressMetrics,
        monotonic: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self._doorbells = doorbells
        self._places = QueueDepthCache(queue, monotonic=monotonic)
        self._memory = memory
        self._workers = workers
        self._caps = caps
        self._metrics = metrics
        self._monotonic = monotonic
        self._random = random
        self._has_memory_until = -math.inf

    async def admit(self, principal: Principal, *, new_work: bool) -> "Admission":
        """Admit new work or a signal. Takes at most 1.5 s.

        Raises problems with a retry time: 503 while Redis is down. For new work also 503 when the queue is full or
        Redis has almost no memory left, and 429 when the tenant's share of the queue is used up, or when memory is
        scarce and the user's events hold much of it.

        An admission is counted here until it is settled or left.
        """
        try:
            if not new_work:
                await self._doorbells.check(limit_s=CHECK_LIMIT_S)
                return Admission(None, principal)
            async with answered_within(ASK_LIMIT_S):
                await self._check_redis(principal)
                depth = await self._places.load(_key_of(principal))
        except (Unavailable, TimeoutError) as error:
            raise self._count(principal, "redis", unavailable("The queue does not respond.")) from error
        try:
            self._caps.check_depth(depth)
        except QueueFull as error:
            raise await self.refuse(principal, error) from error
        # Nothing else runs between the check and this: concurrent requests are not all admitted by one count.
        return Admission(self._places, principal)

    async def refuse(self, principal: Principal, full: QueueFull) -> ProblemError:
        """The problem of a full queue: 503, or 429 for the share of a tenant or user. Takes at most 250 ms.

        `Retry-After` is random between one and two average turns, of at least 5 and at most 15 s, and between 15 and 30
        s while no worker is running. As many turns end in one average turn as run at once, and clients that were
        refused together don't come back together.
        """
        try:
            pool = await self._workers.load()
        except Unavailable:
            pool = None
        idle = pool is not None and not pool.slots
        turn_s = RETRY_MAX_S if pool is None or idle else pool.turn_s
        retry_after_s = math.ceil(min(RETRY_MAX_S, max(RETRY_MIN_S, turn_s)) * (1 + self._random()))
        if full.full != "queue":
            return self._count(principal, full.full, too_many(full.detail, retry_after_s=retry_after_s))
        text = f"{full.detail.rstrip('.')}, and no worker is running." if idle else full.detail
        return self._count(principal, "queue", unavailable(text, retry_after_s=retry_after_s))

    async def _check_redis(self, principal: Principal) -> None:
        """Reject before Redis is full, and first those users whose events fill it. Raises Unavailable if Redis refuses
        writes."""
        if self._monotonic() < self._has_memory_until:
            await self._doorbells.check(limit_s=CHECK_LIMIT_S, writing=True)
            return
        use = await self._memory.probe(principal)
        if use.share < MEMORY_SCARCE:
            self._has_memory_until = self._monotonic() + MEMORY_KEEP_S
        if use.share >= MEMORY_SCARCE and use.of_user >= USER_SCARCE_BYTES:
            text = "The events of your turns use too much memory. They are removed a minute after the turns have ended."
            raise self._count(principal, "user_memory", too_many(text, retry_after_s=MEMORY_RETRY_S))
        if use.share >= MEMORY_FULL:
            text = "The memory for events is nearly full."
            raise self._count(principal, "memory", unavailable(text, retry_after_s=MEMORY_RETRY_S))
        if use.refusal:
            raise Unavailable(f"Redis: {use.refusal}")

    def _count(self, principal: Principal, reason: str, refusal: ProblemError) -> ProblemError:
        self._metrics.refusals.labels(reason=reason, role=strongest_role(principal.roles).value).inc()
        return refusal


class Admission:
    """One admitted request. New work holds a place in the queue until it is stored or abandoned."""

    def __init__(self, places: QueueDepthCache | None, principal: Principal) -> None:
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
