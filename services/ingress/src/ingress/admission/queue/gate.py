"""Whether there is room for more work: asked before anything is stored.

The room of a tenant on a lane comes first, then the room of all. Who is refused is told a time that is kept free.
"""

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from everturn.errors import Unavailable
from everturn.model.identity import Lane, Principal, lane_of
from everturn.model.limits.token_bucket import SECOND_US
from everturn.model.limits.waiting_room import RoomLoad
from everturn.ports.doorbells import Doorbells
from everturn.ports.limits.queue import Queue, QueueDepth
from everturn.ports.limits.waiting_rooms import WaitingRooms
from ingress.admission.limits.defaults import strongest_role
from ingress.admission.limits.rates import hash_key
from ingress.admission.metrics import IngressMetrics
from ingress.admission.queue.fleet import Fleet, FleetWatch
from ingress.errors import ProblemError, too_many, unavailable

KEEP_DEPTH_S = 0.25
"""How old a counted depth may be."""
COUNT_LIMIT_S = 1.0
MAX_DEPTHS = 1_000
UNATTENDED_INTERVAL_US = 30 * SECOND_US
"""Nobody knows when a worker comes; those refused meanwhile ask again half a minute apart."""

_Key = tuple[str, Lane]
_NEVER = (-math.inf, QueueDepth(0, 0, 0))


@dataclass(frozen=True, slots=True)
class QueueCaps:
    """How many turns may wait: in all, in all while no worker is there, and of one tenant on one lane."""

    total: int
    unattended: int
    tenant: int


class WorkGate:
    """Backpressure from the queue's real depth and the workers that are there."""

    def __init__(
        self,
        *,
        doorbells: Doorbells,
        queue: Queue,
        rooms: WaitingRooms,
        fleet: FleetWatch,
        caps: QueueCaps,
        metrics: IngressMetrics,
        monotonic: Callable[[], float],
    ) -> None:
        self._doorbells = doorbells
        self._queue = queue
        self._rooms = rooms
        self._fleet = fleet
        self._caps = caps
        self._metrics = metrics
        self._monotonic = monotonic
        self._depths: OrderedDict[_Key, tuple[float, QueueDepth]] = OrderedDict()
        self._counting = asyncio.Lock()
        self._pending: Counter[_Key] = Counter()

    @asynccontextmanager
    async def admitting(self, principal: Principal, *, new_work: bool) -> AsyncGenerator[None]:
        """Around accepting what `admit` lets in: until it is stored, it is counted here."""
        await self.admit(principal, new_work=new_work)
        key = principal.tenant, lane_of(principal.roles)
        self._pending[key] += new_work
        try:
            yield
        finally:
            self._pending[key] -= new_work
            self._pending += Counter()

    async def admit(self, principal: Principal, *, new_work: bool) -> None:
        """Raises problems that say when to come back: 503 while the wire is down or, for new work, when the queue is
        full; 429 when the tenant's part of it is. Takes at most a second."""
        try:
            if new_work:
                await self._check_rooms(principal)
            else:
                await self._doorbells.check()
        except Unavailable as error:
            raise self._refused(principal, "wire", unavailable("The queue does not answer.")) from error

    async def load_tenant_wait(self, principal: Principal) -> int:
        """Seconds until a place of the tenant's is free, for who was refused in the transaction itself."""
        try:
            fleet, depth = await self._fleet.load(), await self._load_depth(principal)
        except Unavailable:
            return 1
        return max(1, math.ceil(fleet.interval_us * max(1, depth.tenants) / SECOND_US))

    async def _check_rooms(self, principal: Principal) -> None:
        fleet, depth = await self._fleet.load(), await self._load_depth(principal)
        with self._counted_in(principal):
            await self._enter_rooms(principal, fleet, depth)

    async def _enter_rooms(self, principal: Principal, fleet: Fleet, depth: QueueDepth) -> None:
        caller = hash_key(principal.tenant, principal.project, principal.user_id)
        interval_us = fleet.interval_us if fleet.slots else UNATTENDED_INTERVAL_US
        # Doorbells of tenants with a full share alternate, so a tenant's queue drains as a part of all.
        own = RoomLoad(depth.of_tenant, self._caps.tenant, interval_us * max(1, depth.tenants))
        lane = lane_of(principal.roles)
        if own.depth >= own.room // 2:
            entry = await self._rooms.enter(hash_key("tenant", principal.tenant, lane.value), caller, own)
            if not entry.admitted:
                text = f"{own.depth} turns of this tenant are waiting already."
                raise self._refused(principal, "tenant", too_many(text, retry_after_s=_whole(entry.wait_s)))
        room = self._caps.total if fleet.slots else min(self._caps.total, self._caps.unattended)
        entry = await self._rooms.enter("all", caller, RoomLoad(depth.waiting, room, interval_us))
        if not entry.admitted:
            text = f"{depth.waiting} turns are waiting already{'' if fleet.slots else ', and no worker is there'}."
            reason = "queue" if fleet.slots else "unattended"
            raise self._refused(principal, reason, unavailable(text, retry_after_s=_whole(entry.wait_s)))

    async def _load_depth(self, principal: Principal) -> QueueDepth:
        """As counted a moment ago, with those let in since. Of many requests at once one counts for all."""
        key = principal.tenant, lane_of(principal.roles)
        try:
            async with asyncio.timeout(COUNT_LIMIT_S), self._counting:
                if self._monotonic() - self._depths.get(key, _NEVER)[0] > KEEP_DEPTH_S:
                    self._keep(key, self._monotonic(), self._add_pending(key, await self._queue.load_depth(*key)))
        except TimeoutError as error:
            raise Unavailable("The queue is not counted in time.") from error
        return self._depths[key][1]

    def _add_pending(self, key: _Key, depth: QueueDepth) -> QueueDepth:
        waiting, of_tenant = depth.waiting + self._pending.total(), depth.of_tenant + self._pending[key]
        return QueueDepth(waiting, of_tenant, depth.tenants)

    def _keep(self, key: _Key, counted_at: float, depth: QueueDepth) -> None:
        self._depths[key] = counted_at, depth
        self._depths.move_to_end(key)
        if len(self._depths) > MAX_DEPTHS:
            self._depths.popitem(last=False)

    @contextmanager
    def _counted_in(self, principal: Principal) -> Generator[None]:
        """Many that come at once must not all be let in by one count; who is refused counts no longer."""
        self._count(principal, 1)
        try:
            yield
        except BaseException:
            self._count(principal, -1)
            raise

    def _count(self, principal: Principal, more: int) -> None:
        key = principal.tenant, lane_of(principal.roles)
        counted_at, depth = self._depths.get(key, _NEVER)
        waiting, of_tenant = max(0, depth.waiting + more), max(0, depth.of_tenant + more)
        self._keep(key, counted_at, QueueDepth(waiting, of_tenant, max(1, depth.tenants)))

    def _refused(self, principal: Principal, reason: str, refusal: ProblemError) -> ProblemError:
        self._metrics.refusals.labels(reason=reason, role=strongest_role(principal.roles).value).inc()
        return refusal


def _whole(wait_s: float) -> int:
    return max(1, math.ceil(wait_s))
