"""Whether there is room for more work: asked before anything is stored.

The room of a tenant on a lane comes first, then the room of all. Who is refused is told a time that is kept free.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
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
from ingress.admission.queue.fleet import FleetWatch
from ingress.errors import ProblemError, too_many, unavailable

KEEP_DEPTH_S = 0.25
"""How old a counted depth may be."""
MAX_DEPTHS = 1_000
UNATTENDED_INTERVAL_US = 30 * SECOND_US
"""Nobody knows when a worker comes; those refused meanwhile ask again half a minute apart."""


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
        self._depths: OrderedDict[tuple[str, Lane], tuple[float, QueueDepth]] = OrderedDict()

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
        self._count_in(principal)

    async def _load_depth(self, principal: Principal) -> QueueDepth:
        key = principal.tenant, lane_of(principal.roles)
        counted_at, depth = self._depths.get(key, (-math.inf, None))
        if depth is None or self._monotonic() - counted_at > KEEP_DEPTH_S:
            depth = await self._queue.load_depth(*key)
            self._depths[key] = self._monotonic(), depth
            self._depths.move_to_end(key)
            if len(self._depths) > MAX_DEPTHS:
                self._depths.popitem(last=False)
        return depth

    def _count_in(self, principal: Principal) -> None:
        """Many that come at once must not all be let in by one count."""
        key = principal.tenant, lane_of(principal.roles)
        counted_at, depth = self._depths[key]
        self._depths[key] = counted_at, QueueDepth(depth.waiting + 1, depth.of_tenant + 1, max(1, depth.tenants))

    def _refused(self, principal: Principal, reason: str, refusal: ProblemError) -> ProblemError:
        self._metrics.refusals.labels(reason=reason, role=strongest_role(principal.roles).value).inc()
        return refusal


def _whole(wait_s: float) -> int:
    return max(1, math.ceil(wait_s))
