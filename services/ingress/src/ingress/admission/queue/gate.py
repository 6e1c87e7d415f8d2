"""Whether there is room for more work: asked before anything is stored.

The room of a tenant on a lane comes first, then the room of all. Who is refused is told a time that is kept free for
this request, which its Idempotency-Key names.
"""

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from everturn.errors import Unavailable
from everturn.model.identity import Principal, lane_of
from everturn.model.limits.token_bucket import SECOND_US
from everturn.model.limits.waiting_room import MAX_WAIT_US, Entry, RoomLoad, Visitor, most_of
from everturn.ports.doorbells import Doorbells
from everturn.ports.inbox import IdempotencyKey
from everturn.ports.limits.queue import Queue, QueueDepth
from everturn.ports.limits.waiting_rooms import WaitingRooms
from ingress.admission.limits.defaults import strongest_role
from ingress.admission.limits.rates import hash_key
from ingress.admission.metrics import IngressMetrics
from ingress.admission.queue.fleet import Fleet, FleetWatch
from ingress.admission.queue.places import Places, QueueKey
from ingress.errors import ProblemError, too_many, unavailable

CHECK_LIMIT_S = 0.5
"""How long a signal waits for the wire; who is refused must know it within 2 s, checks and rate limits included."""
ALL = "all"
"""The waiting room of everybody."""
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
        self._places = Places(queue, monotonic=monotonic)
        self._rooms = rooms
        self._fleet = fleet
        self._caps = caps
        self._metrics = metrics

    @asynccontextmanager
    async def admitting(
        self, principal: Principal, key: IdempotencyKey | None, *, new_work: bool
    ) -> AsyncGenerator["Admission"]:
        """Around accepting what `admit` lets in. Until it is told to be stored, it is counted here."""
        admission = await self.admit(principal, key, new_work=new_work)
        try:
            yield admission
        finally:
            admission.leave()

    async def admit(self, principal: Principal, key: IdempotencyKey | None, *, new_work: bool) -> "Admission":
        """Raises problems that say when to come back: 503 while the wire is down or, for new work, when the queue is
        full; 429 when the tenant's part of it is. Takes at most a second and a half."""
        visitor = _visitor(principal, key)
        try:
            if new_work:
                return await self._enter(principal, visitor)
            await self._doorbells.check(limit_s=CHECK_LIMIT_S)
        except Unavailable as error:
            raise self._refused(principal, "wire", unavailable("The queue does not answer.")) from error
        return Admission(None, principal, visitor)

    async def load_tenant_wait(self, admission: "Admission") -> int:
        """Seconds until a place that is kept from now on, for who was refused in the transaction itself."""
        principal = admission.principal
        try:
            fleet, depth = await self._fleet.load(), await self._places.load(_key_of(principal))
            own = self._tenant_load(fleet, depth)
            # Only the transaction counts what other processes let in a moment ago: the room is as full as it can be.
            full = replace(own, depth=max(own.depth, most_of(own.room)))
            entry = await self._rooms.enter(_room_of(principal), admission.visitor, full)
            await self._tell_other(ALL, self._total_load(fleet, depth), admission.visitor, entry)
        except Unavailable:
            return 1
        return _whole(entry.wait_s)

    async def _enter(self, principal: Principal, visitor: Visitor) -> "Admission":
        fleet, depth = await self._fleet.load(), await self._places.load(_key_of(principal))
        # Counted before the rooms are asked: many that come at once must not all be let in by one count.
        admission = Admission(self._places, principal, visitor)
        try:
            await self._enter_rooms(principal, visitor, fleet, depth)
        except BaseException:
            admission.leave()
            raise
        return admission

    async def _enter_rooms(self, principal: Principal, visitor: Visitor, fleet: Fleet, depth: QueueDepth) -> None:
        own, total = self._tenant_load(fleet, depth), self._total_load(fleet, depth)
        if _is_crowded(own):
            entry = await self._rooms.enter(_room_of(principal), visitor, own)
            if not entry.admitted:
                await self._tell_other(ALL, total, visitor, entry)
                text = f"{own.depth} turns of this tenant are waiting already."
                raise self._refused(principal, "tenant", too_many(text, retry_after_s=_whole(entry.wait_s)))
        entry = await self._rooms.enter(ALL, visitor, total)
        if not entry.admitted:
            await self._tell_other(_room_of(principal), own, visitor, entry)
            text = f"{depth.waiting} turns are waiting already{'' if fleet.slots else ', and no worker is there'}."
            reason = "queue" if fleet.slots else "unattended"
            raise self._refused(principal, reason, unavailable(text, retry_after_s=_whole(entry.wait_s)))

    async def _tell_other(self, room: str, load: RoomLoad, visitor: Visitor, entry: Entry) -> None:
        """What one room told holds in the other one too. Whoever is told the longest wait may have no place at all."""
        if _is_crowded(load) and entry.wait_s < MAX_WAIT_US / SECOND_US:
            await self._rooms.keep(room, visitor, entry.wait_s)

    def _total_load(self, fleet: Fleet, depth: QueueDepth) -> RoomLoad:
        room = self._caps.total if fleet.slots else min(self._caps.total, self._caps.unattended)
        return RoomLoad(depth.waiting, room, _interval_us(fleet))

    def _tenant_load(self, fleet: Fleet, depth: QueueDepth) -> RoomLoad:
        # Doorbells of tenants with a full share alternate, so a tenant's queue drains as a part of all.
        return RoomLoad(depth.of_tenant, self._caps.tenant, _interval_us(fleet) * max(1, depth.tenants))

    def _refused(self, principal: Principal, reason: str, refusal: ProblemError) -> ProblemError:
        self._metrics.refusals.labels(reason=reason, role=strongest_role(principal.roles).value).inc()
        return refusal


class Admission:
    """One that was let in. It takes a place of the queue, unless it is no new work, until it is stored or given up."""

    def __init__(self, places: Places | None, principal: Principal, visitor: Visitor) -> None:
        self.principal = principal
        self.visitor = visitor
        self._places = places
        self._key = _key_of(principal)
        if places is not None:
            places.enter(self._key)

    def settle(self) -> None:
        """It is stored: from here on the queue itself has it."""
        if self._places is not None:
            self._places.settle(self._key)
        self._places = None

    def leave(self) -> None:
        """It is not stored; nothing happens where it is."""
        if self._places is not None:
            self._places.leave(self._key)
        self._places = None


def _key_of(principal: Principal) -> QueueKey:
    return principal.tenant, lane_of(principal.roles)


def _room_of(principal: Principal) -> str:
    return hash_key("tenant", principal.tenant, lane_of(principal.roles).value)


def _visitor(principal: Principal, key: IdempotencyKey | None) -> Visitor:
    caller = hash_key(*principal.owner)
    return Visitor(caller, hash_key(key.route, key.key) if key else "")


def _is_crowded(load: RoomLoad) -> bool:
    """Below half of what may wait nobody is told anything."""
    return load.depth >= load.room // 2


def _interval_us(fleet: Fleet) -> int:
    return fleet.interval_us if fleet.slots else UNATTENDED_INTERVAL_US


def _whole(wait_s: float) -> int:
    return max(1, math.ceil(wait_s))
