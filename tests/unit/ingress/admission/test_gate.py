"""Backpressure from the queue's depth and the workers that are there; every refusal says when to come back."""

import asyncio
import heapq
import math
import random
from typing import Any

import pytest

from everturn.core.errors import Unavailable
from everturn.core.identity import Lane, Principal
from everturn.events.stream import WireUse
from everturn.limits.waiting_rooms import SPACING, Entry, RoomLoad, Visitor
from everturn.queue.ports import QueueDepth, WorkerPresence
from everturn.turns.inbox import IdempotencyKey
from everturn_testing.core import FixedClock
from everturn_testing.limits.waiting_rooms import MemoryWaitingRooms
from everturn_testing.queue.doorbells import MemoryDoorbells
from everturn_testing.queue.presences import MemoryPresences
from ingress.admission.metrics import IngressMetrics
from ingress.admission.queue_gate import QueueCaps, WorkerPoolWatch, WorkGate
from ingress.errors import ProblemError

ME = Principal("t", "p", "me")
CAPS = QueueCaps(total=100, unattended=20, tenant=40)


class Rooms(MemoryWaitingRooms):
    """May never answer."""

    silent = False

    async def enter(self, room: str, visitor: Visitor, load: RoomLoad) -> Entry:
        if self.silent:
            await asyncio.Event().wait()
        return await super().enter(room, visitor, load)


class World:
    """A gate before a queue of a given depth. If nothing is said 100 turns may wait, 20 unattended, 40 of a tenant."""

    def __init__(
        self, waiting: int = 0, of_tenant: int = 0, *, caps: QueueCaps = CAPS, beside: "World | None" = None
    ) -> None:
        self.depth: QueueDepth | None = QueueDepth(waiting, of_tenant, 2)
        self.counted = 0
        self.clock = FixedClock()
        self.metrics = IngressMetrics()
        self.use = WireUse(0, 0)
        self.doorbells = MemoryDoorbells()
        self.presences = MemoryPresences(monotonic=self.clock.monotonic)
        self.rooms = Rooms(monotonic=self.clock.monotonic, beside=beside.rooms if beside else None)
        world: Any = self
        self.gate = WorkGate(
            doorbells=self.doorbells,
            queue=world,
            memory=world,
            rooms=self.rooms,
            fleet=WorkerPoolWatch(self.presences, monotonic=self.clock.monotonic),
            caps=caps,
            metrics=self.metrics,
            monotonic=self.clock.monotonic,
        )

    async def load_use(self, owner: Principal | None = None) -> WireUse:
        return self.use

    async def load_depth(self, tenant: str, lane: Lane) -> QueueDepth:
        self.counted += 1
        if self.depth is None:
            raise Unavailable("Postgres")
        return self.depth

    async def attend(self) -> "World":
        """Ten slots that need 5 s for a turn: one place every half second."""
        await self.presences.save(WorkerPresence("w", "", None, 10, 5.0), ttl_s=600)
        return self

    async def refuse(self, principal: Principal = ME, key: IdempotencyKey | None = None) -> tuple[int, int]:
        """The status and the wait of a refusal."""
        with pytest.raises(ProblemError) as refused:
            await self.gate.admit(principal, key, new_work=True)
        return refused.value.status_code, int((refused.value.headers or {})["Retry-After"])

    def refusals(self, reason: str) -> float:
        labels = {"reason": reason, "role": "registered"}
        return self.metrics.registry.get_sample_value("ingress_refusals_total", labels) or 0


async def test_below_its_maximum_work_is_admitted() -> None:
    world = await World(waiting=99).attend()

    await world.gate.admit(ME, None, new_work=True)


async def test_a_full_queue_is_a_503_with_the_time_until_there_is_room() -> None:
    world = await World(waiting=109).attend()

    assert await world.refuse() == (503, 6)
    assert await world.refuse(Principal("t", "p", "other")) == (503, 7)
    assert world.refusals("queue") == 2


async def test_who_comes_when_told_is_admitted_while_others_wait() -> None:
    world = await World(waiting=100).attend()
    _, wait_s = await world.refuse()

    world.clock.advance(wait_s)

    await world.gate.admit(ME, None, new_work=True)
    assert (await world.refuse(Principal("t", "p", "other")))[0] == 503


async def test_many_at_once_are_not_all_let_in_by_one_count() -> None:
    world = await World(waiting=98).attend()

    for n in range(2):
        await world.gate.admit(Principal("t", "p", str(n)), None, new_work=True)

    assert (await world.refuse())[0] == 503
    assert world.counted == 1


async def test_processes_together_let_in_no_more_than_there_is_room_for() -> None:
    one = await World(waiting=90).attend()
    processes = [one, *[await World(waiting=90, beside=one).attend() for _ in range(2)]]
    let_in = 0

    with pytest.raises(ProblemError) as refused:
        for n in range(100):
            await processes[n % 3].gate.admit(Principal("t", "p", str(n)), None, new_work=True)
            let_in += 1

    assert let_in == 10
    assert refused.value.status_code == 503


async def test_without_workers_fewer_are_taken_and_told_that_nobody_is_there() -> None:
    world = World(waiting=20)

    with pytest.raises(ProblemError) as refused:
        await world.gate.admit(ME, None, new_work=True)

    assert refused.value.headers == {"Retry-After": "33"}
    assert "no worker" in refused.value.detail
    assert world.refusals("unattended") == 1
    await World(waiting=19).gate.admit(ME, None, new_work=True)


async def test_a_tenant_with_its_part_full_is_a_429_while_others_are_admitted() -> None:
    world = await World(waiting=50, of_tenant=40).attend()

    assert await world.refuse() == (429, 2)
    assert world.refusals("tenant") == 1
    world.depth = QueueDepth(50, 10, 2)
    await world.gate.admit(Principal("light", "p", "u"), None, new_work=True)


async def test_signals_into_running_turns_pass_a_full_queue() -> None:
    await World(waiting=10_000).gate.admit(ME, None, new_work=False)


@pytest.mark.parametrize("part", ["doorbells", "rooms", "presences", "database"])
async def test_what_does_not_answer_is_a_503(part: str) -> None:
    world = World()
    if part == "database":
        world.depth = None
    else:
        getattr(world, part).down = True

    with pytest.raises(ProblemError) as refused:
        await world.gate.admit(ME, None, new_work=part != "doorbells")

    assert refused.value.status_code == 503
    assert "Retry-After" in (refused.value.headers or {})
    assert world.refusals("wire") == 1


async def test_who_was_refused_in_the_transaction_has_a_place_when_told() -> None:
    world = await World(waiting=50, of_tenant=40).attend()
    world.depth = QueueDepth(50, 39, 2)
    admission = await world.gate.admit(ME, None, new_work=True)
    wait_s = await world.gate.keep_tenant_place(admission)
    admission.leave()

    world.clock.advance(wait_s)
    world.depth = QueueDepth(50, 45, 2)

    assert wait_s == 13
    assert (await world.refuse(Principal("t", "p", "other")))[0] == 429
    await world.gate.admit(ME, None, new_work=True)


async def test_who_was_refused_in_the_transaction_asks_soon_again_while_nothing_is_known() -> None:
    world = await World(waiting=50).attend()
    admission = await world.gate.admit(ME, None, new_work=True)
    world.depth = None
    world.clock.advance(1)

    assert await world.gate.keep_tenant_place(admission) == 1


async def test_each_of_a_users_many_clients_is_told_a_time_of_its_own() -> None:
    world = await World(waiting=50, of_tenant=40).attend()

    told = [await world.refuse() for _ in range(60)]

    assert told == [(429, math.ceil(n * SPACING - 0.001)) for n in range(1, 61)]


async def test_what_is_being_stored_counts_until_it_is() -> None:
    world = await World(waiting=99).attend()

    admission = await world.gate.admit(ME, None, new_work=True)
    world.clock.advance(1)
    assert (await world.refuse(Principal("t", "p", "other")))[0] == 503
    admission.leave()
    world.clock.advance(20)

    await world.gate.admit(Principal("t", "p", "another"), None, new_work=True)


async def test_a_new_request_of_the_same_user_takes_no_place_of_another() -> None:
    world = await World(waiting=100).attend()
    told, fresh = IdempotencyKey("POST /m", "told", "h"), IdempotencyKey("POST /m", "fresh", "h")
    _, wait_s = await world.refuse(key=told)
    world.clock.advance(wait_s)

    assert (await world.refuse(key=fresh))[0] == 503
    assert (await world.refuse(key=IdempotencyKey("POST /other", "told", "h")))[0] == 503
    await world.gate.admit(ME, told, new_work=True)


async def test_who_passes_its_tenants_room_and_finds_no_room_at_all_is_let_in_by_both_when_told() -> None:
    world = await World(waiting=80, of_tenant=40).attend()
    key = IdempotencyKey("POST /m", "k", "h")
    _, wait_s = await world.refuse(key=key)
    world.clock.advance(wait_s)
    world.depth = QueueDepth(130, 40, 2)
    status, wait_s = await world.refuse(key=key)
    world.clock.advance(wait_s)

    world.depth = QueueDepth(100, 40, 2)
    other = await world.refuse(key=IdempotencyKey("POST /m", "other", "h"))
    await world.gate.admit(ME, key, new_work=True)

    assert (status, other[0]) == (503, 429)


@pytest.mark.parametrize(
    ("depth", "told"), [(QueueDepth(60, 40, 2), (429, 2)), (QueueDepth(109, 30, 2), (503, 6))], ids=["tenant", "all"]
)
async def test_a_time_that_one_room_told_is_the_answer_also_where_the_other_does_not_hear_of_it(
    depth: QueueDepth, told: tuple[int, int]
) -> None:
    world = await World().attend()
    world.depth = depth
    world.rooms.forgetful = True

    assert await world.refuse(key=IdempotencyKey("POST /m", "k", "h")) == told


async def test_who_was_refused_in_the_transaction_is_told_its_time_also_where_no_pass_is_kept() -> None:
    world = await World(waiting=60, of_tenant=39).attend()
    admission = await world.gate.admit(ME, IdempotencyKey("POST /m", "k", "h"), new_work=True)
    world.rooms.forgetful = True

    assert await world.gate.keep_tenant_place(admission) == 13


async def test_who_asks_rooms_that_never_answer_is_refused_in_time_and_takes_no_place() -> None:
    world = await World(waiting=99).attend()
    world.rooms.silent = True

    async with asyncio.timeout(30):
        refused = await world.refuse()
    world.rooms.silent = False

    assert refused[0] == 503
    await world.gate.admit(ME, None, new_work=True)


class Rush:
    """Clients of several tenants before one queue, of which ten slots take turns of five seconds, evenly on average."""

    def __init__(self, seed: int, tenants: int, caps: QueueCaps) -> None:
        self.rng = random.Random(seed)
        self.world = World(caps=caps)
        self.waiting = [0] * tenants
        self.returned = self.let_in = 0
        self._next_end_s = 0.0

    async def run(self, clients: int, over_s: float) -> None:
        """Each comes once, and again whenever it was told."""
        await self.world.attend()
        calls = [(self.rng.random() * over_s, n, False) for n in range(clients)]
        heapq.heapify(calls)
        while calls:
            at_s, n, again = heapq.heappop(calls)
            self._drain(at_s)
            wait_s = await self._ask(n, at_s)
            self.returned += again
            self.let_in += again and wait_s is None
            if wait_s is not None:
                heapq.heappush(calls, (at_s + wait_s, n, True))

    async def _ask(self, n: int, at_s: float) -> int | None:
        world, tenant = self.world, n % len(self.waiting)
        world.clock.advance(at_s - world.clock.monotonic())
        world.depth = QueueDepth(sum(self.waiting), self.waiting[tenant], max(1, sum(map(bool, self.waiting))))
        try:
            key = IdempotencyKey("POST /m", str(n), "h")
            admission = await world.gate.admit(Principal(f"t{tenant}", "p", f"u{n % 12}"), key, new_work=True)
        except ProblemError as refused:
            return int((refused.headers or {})["Retry-After"])
        admission.leave()
        self.waiting[tenant] += 1
        return None

    def _drain(self, now_s: float) -> None:
        while any(self.waiting) and self._next_end_s <= now_s:
            self.waiting[self.rng.choice([t for t, waiting in enumerate(self.waiting) if waiting])] -= 1
            self._next_end_s += self.rng.expovariate(2.0)
        self._next_end_s = max(self._next_end_s, now_s) if not any(self.waiting) else self._next_end_s


async def test_who_is_told_by_its_tenants_room_is_let_in_by_the_full_room_of_all_too() -> None:
    world = await World(waiting=100, of_tenant=40).attend()
    key = IdempotencyKey("POST /m", "k", "h")
    status, wait_s = await world.refuse(key=key)
    world.clock.advance(wait_s)

    await world.gate.admit(ME, key, new_work=True)

    assert status == 429


@pytest.mark.parametrize(("tenants", "of_tenant"), [(2, 40), (2, 60), (4, 40)])
async def test_through_a_tenants_room_and_the_room_of_all_at_least_95_of_100_come_when_told(
    tenants: int, of_tenant: int
) -> None:
    rushes = [Rush(seed, tenants, QueueCaps(80, 80, of_tenant)) for seed in range(4)]

    for rush in rushes:
        await rush.run(clients=240, over_s=20)

    returned = sum(rush.returned for rush in rushes)
    assert returned >= 200
    assert sum(rush.let_in for rush in rushes) >= 0.95 * returned


@pytest.mark.parametrize(
    ("use", "refusal"),
    [
        (WireUse(used=60, limit=100, of_user=50 << 20), None),
        (WireUse(used=70, limit=100, of_user=1 << 20), (429, 60)),
        (WireUse(used=89, limit=100, of_user=0), None),
        (WireUse(used=90, limit=100, of_user=0), (503, 60)),
        (WireUse(used=90, limit=0, of_user=50 << 20), None),
    ],
)
async def test_who_fills_the_wire_is_refused_before_it_is_full(use: WireUse, refusal: tuple[int, int] | None) -> None:
    world = await World().attend()
    world.use = use

    if refusal is None:
        (await world.gate.admit(ME, None, new_work=True)).settle()
    else:
        assert await world.refuse() == refusal
