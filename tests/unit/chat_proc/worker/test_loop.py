import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from chat_proc.worker.heartbeat import Heartbeat
from chat_proc.worker.loop import LANE_WEIGHTS, LEND_AFTER_S, ClaimLoop, Slots, lane_orders
from chat_proc.worker.presence import TurnDurationAverage
from chat_proc.worker.ringing import Ringer
from everturn.core.errors import StaleFence, Unavailable
from everturn.core.failpoints import Failpoints
from everturn.core.identity import Lane, Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.metrics import TURNS_REQUEUED
from everturn.events.cursor import ORIGIN
from everturn.turns.model import Claim, ClaimBounds, Deferred, Lease, SlotKind
from everturn_testing.core import FixedClock
from everturn_testing.queue.doorbells import MemoryDoorbells
from everturn_testing.turns.reading import NoSweeps

ANN = Principal("acme", "main", "ann")


def conversation(n: int) -> ConversationId:
    return ConversationId(f"conv_{n}")


class Leases:
    """Gives out every lease that is asked for, `answer_s` later; `attempts` says how often its turn was taken over."""

    def __init__(self, clock: FixedClock) -> None:
        self.clock = clock
        self.answer_s = 0.0
        self.attempts: dict[ConversationId, int] = {}
        self.claimed: list[ConversationId] = []
        self.refuses: Exception | None = None
        self.refused = 0
        self.better: dict[ConversationId, ConversationId] = {}
        self.extra: list[ConversationId] = []
        self.slots_asked_for: list[SlotKind] = []
        self.away = False
        self.released: list[ConversationId] = []

    async def try_claim(self, conversation_id: ConversationId) -> Claim | None:
        if self.refuses is not None:
            self.refused += 1
            raise self.refuses
        if conversation_id == conversation(0):
            return None
        self.claimed.append(conversation_id)
        self.clock.advance(self.answer_s)
        lease = Lease(conversation_id, ANN, "me", 1)
        return Claim(lease, TurnId("turn_1"), self.attempts.get(conversation_id, 0), 1, "", ORIGIN, 0)

    async def try_claim_fairly(
        self, conversation_id: ConversationId, bounds: ClaimBounds, slot: SlotKind
    ) -> Claim | Deferred | None:
        if (better := self.better.get(conversation_id)) is not None and better not in self.claimed:
            return Deferred(better, Lane.REGISTERED)
        return await self.try_claim(conversation_id)

    async def find_extra_turn(self, bounds: ClaimBounds, slot: SlotKind) -> ConversationId | None:
        self.slots_asked_for.append(slot)
        return self.extra.pop(0) if self.extra else None

    async def renew(self, held: Mapping[ConversationId, int]) -> Mapping[ConversationId, int]:
        if self.away:
            raise Unavailable()
        return {}

    async def release(self, lease: Lease, *, requeue: bool) -> bool:
        if self.away:
            raise Unavailable()
        assert requeue
        self.released.append(lease.conversation_id)
        return True


class Turn:
    fence = 1

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.ends = asyncio.Event()
        self.error: Exception | None = None
        self.calls: list[str] = []
        self.running = False
        self.comes_to_its_end = True
        self.overdue = asyncio.Event()
        self.idle_s = 0.0

    async def run(self) -> bool:
        self.running = True
        await self.ends.wait()
        self.running = False
        if self.error is not None:
            raise self.error
        return self.comes_to_its_end

    def request_handover(self) -> None:
        self.calls.append("handover")
        self.ends.set()

    def interrupt(self) -> None:
        self.calls.append("interrupt")
        self.ends.set()

    def notice_inbox(self, inbox_seq: int) -> None:
        self.calls.append("seq")

    def confirm_lease(self, at_s: float) -> None:
        self.confirmed_at = at_s

    def ring_inbox(self) -> None:
        self.calls.append("ring")

    is_releasing = False
    left_behind = False

    def stalled_for_s(self) -> float:
        return 0.0

    def lose_lease(self) -> None:
        self.calls.append("lost")

    async def wait_overdue(self) -> None:
        await self.overdue.wait()


class Runner:
    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def hold(self, claim: Claim, requested_at_s: float) -> Turn:
        self.turns.append(Turn(claim))
        return self.turns[-1]

    @property
    def running(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.running]


class Bells:
    def __init__(self) -> None:
        self.rung: asyncio.Queue[ConversationId | Exception] = asyncio.Queue()

    async def ring(self, conversation_id: ConversationId) -> None:
        self.rung.put_nowait(conversation_id)

    async def listen(self) -> AsyncIterator[ConversationId]:
        while True:
            item = await self.rung.get()
            if isinstance(item, Exception):
                raise item
            yield item


class QuickDoorbells(MemoryDoorbells):
    """Waits shorter, so that a drain is noticed soon; keeps the lanes it was asked for. Can fail to ring."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: list[tuple[Lane, ...]] = []
        self.waiting = 0
        self.failures = 0

    async def ring(self, lane: Lane, conversation_id: ConversationId) -> None:
        if self.failures:
            self.failures -= 1
            raise Unavailable("no Redis")
        await super().ring(lane, conversation_id)

    async def next_ring(self, lanes: Sequence[Lane], *, timeout_s: float) -> ConversationId | None:
        self.orders.append(tuple(lanes))
        self.waiting += 1
        try:
            return await super().next_ring(lanes, timeout_s=0.02)
        finally:
            self.waiting -= 1


class WatchedSlots(Slots):
    """Reports whether somebody waits for a slot."""

    waiting = 0

    async def wait_free(self) -> None:
        self.waiting += 1
        try:
            await super().wait_free()
        finally:
            self.waiting -= 1


class Desk:
    """A claim loop at work, with everything around it at hand."""

    def __init__(self, slots: int = 2, extra: int = 0) -> None:
        self.clock = FixedClock()
        self.leases = Leases(self.clock)
        self.doorbells = QuickDoorbells()
        self.bells = Bells()
        self.runner = Runner()
        self.slots = WatchedSlots(slots, extra=extra)
        self.turn_average = TurnDurationAverage()
        self.indexer_rung = asyncio.Event()
        self.heartbeat = Heartbeat(self.leases, self.clock, lease_s=15)
        self.loop = ClaimLoop(
            leases=self.leases,
            claims=self.leases,
            clock=self.clock,
            bounds=lambda: ClaimBounds(3, 4, 8, 8),
            doorbells=self.doorbells,
            ringer=Ringer(self.doorbells, NoSweeps()),
            bells=self.bells,
            heartbeat=self.heartbeat,
            build_runner=self.runner.hold,
            slots=self.slots,
            turn_average=self.turn_average,
            failpoints=Failpoints(),
            ring_indexer=self.indexer_rung.set,
        )

    async def ring(self, n: int, lane: Lane = Lane.REGISTERED) -> None:
        await self.doorbells.ring(lane, conversation(n))

    async def until_running(self, count: int) -> None:
        await self.until(lambda: len(self.runner.running) == count)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - the loop under test has no event for it
                await asyncio.sleep(0.001)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with working(Desk()) as desk:
        yield desk


@asynccontextmanager
async def working(desk: Desk) -> AsyncIterator[Desk]:
    task = asyncio.create_task(desk.loop.run())
    yield desk
    for turn in desk.runner.turns:
        turn.ends.set()
    desk.loop.drain()
    desk.loop.interrupt()
    await asyncio.wait_for(task, 5)


def test_lanes_come_first_as_often_as_their_weight_says() -> None:
    orders = lane_orders()

    assert Counter(order[0] for order in orders) == dict(LANE_WEIGHTS)
    assert dict(LANE_WEIGHTS) == {Lane.PRIVILEGED: 8, Lane.PAID: 4, Lane.REGISTERED: 2, Lane.ANONYMOUS: 1}
    assert all(set(order) == {lane for lane, _ in LANE_WEIGHTS} for order in orders)


def test_no_lane_waits_for_all_turns_of_another() -> None:
    firsts = [order[0] for order in lane_orders()]

    assert firsts.index(Lane.ANONYMOUS) < len(firsts) - 1
    assert firsts[:8] != [Lane.PRIVILEGED] * 8


async def test_a_ring_starts_a_turn(desk: Desk) -> None:
    await desk.ring(1)

    await desk.until_running(1)

    assert desk.leases.claimed == [conversation(1)]


async def test_a_ring_for_nothing_takes_no_slot(desk: Desk) -> None:
    await desk.ring(0)
    await desk.ring(1)

    await desk.until_running(1)

    assert desk.slots.running == 1


async def test_a_full_worker_claims_no_more_but_cancels_still_get_in(desk: Desk) -> None:
    for n in (1, 2, 3):
        await desk.ring(n)
    await desk.until_running(2)

    await desk.ring(4, Lane.CONTROL)
    await desk.until(lambda: len(desk.runner.turns) == 3)

    assert desk.runner.turns[2].calls == ["handover"], "it runs no round if its cancel was retracted"
    assert conversation(3) not in desk.leases.claimed
    for turn in desk.runner.turns[:2]:
        turn.ends.set()
    await desk.until(lambda: conversation(3) in desk.leases.claimed)
    assert desk.turn_average.turn_s is not None


async def test_a_database_that_is_away_does_not_end_the_claiming(desk: Desk) -> None:
    desk.leases.refuses = Unavailable()
    await desk.ring(1)
    await desk.until(lambda: desk.leases.refused == 1)
    desk.leases.refuses = None

    await desk.ring(2)

    await desk.until_running(1)


@pytest.mark.parametrize("error", [StaleFence(), RuntimeError("a bug")])
async def test_a_failed_turn_frees_its_slot(desk: Desk, error: Exception) -> None:
    await desk.ring(1)
    await desk.ring(2)
    await desk.until_running(2)

    desk.runner.turns[0].error = error
    desk.runner.turns[0].ends.set()

    await desk.until_running(1)
    await desk.until(lambda: desk.slots.running == 1)


@pytest.mark.parametrize("error", [StaleFence(), Unavailable()])
async def test_a_turn_interrupted_by_an_outage_is_requeued(desk: Desk, error: Exception) -> None:
    await desk.ring(1)
    await desk.until_running(1)
    desk.leases.away = True
    await desk.heartbeat.beat()
    desk.runner.turns[0].error = error
    desk.runner.turns[0].ends.set()
    await desk.until(lambda: desk.slots.running == 0)
    assert desk.leases.released == []

    desk.leases.away = False

    await desk.until(lambda: desk.leases.released == [conversation(1)])
    # Its doorbell is rung too, so it runs again.
    await desk.until_running(1)


async def test_a_turn_is_requeued_once_even_if_its_doorbell_fails(desk: Desk) -> None:
    await desk.ring(1)
    await desk.until_running(1)
    desk.leases.away = True
    await desk.heartbeat.beat()
    desk.leases.away, desk.doorbells.failures = False, 2
    before = TURNS_REQUEUED._value.get()  # pyright: ignore[reportPrivateUsage]
    desk.runner.turns[0].error = Unavailable()

    desk.runner.turns[0].ends.set()

    await desk.until(lambda: len(desk.runner.turns) == 2)
    assert desk.leases.released == [conversation(1)]
    assert TURNS_REQUEUED._value.get() == before + 1  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("left_behind", [True, False])
async def test_a_lost_turn_is_requeued_only_after_an_outage(desk: Desk, left_behind: bool) -> None:
    await desk.ring(1)
    await desk.until_running(1)
    turn = desk.runner.turns[0]
    if left_behind:
        turn.left_behind = True
        desk.leases.away = True
        await desk.heartbeat.beat()
        desk.leases.away = False
    turn.error = Unavailable()
    turn.ends.set()

    await desk.ring(2)
    await desk.until_running(1)

    assert desk.leases.released == []


async def test_interrupted_turns_do_not_count_for_the_average(desk: Desk) -> None:
    desk.leases.attempts[conversation(2)] = 1
    await desk.ring(1)
    await desk.ring(2)
    await desk.until_running(2)
    desk.runner.turns[0].comes_to_its_end = False

    for turn in desk.runner.turns:
        turn.ends.set()

    await desk.until(lambda: desk.slots.running == 0)
    assert desk.turn_average.turn_s is None


async def test_an_overdue_turn_gives_its_slot_back(desk: Desk) -> None:
    for n in (1, 2, 3):
        await desk.ring(n)
    await desk.until_running(2)

    desk.runner.turns[0].overdue.set()

    await desk.until(lambda: len(desk.leases.claimed) == 3)


async def test_a_bell_reaches_its_turn_also_after_redis_broke(desk: Desk) -> None:
    await desk.ring(1)
    await desk.until_running(1)

    desk.bells.rung.put_nowait(Unavailable())
    await desk.bells.ring(conversation(1))

    await desk.until(lambda: desk.runner.turns[0].calls == ["ring"])


async def test_a_suspect_turn_runs_alone(desk: Desk) -> None:
    desk.leases.attempts[conversation(1)] = 2
    await desk.ring(2)
    await desk.until_running(1)
    await desk.ring(1)
    await desk.until(lambda: desk.slots.running == 2)
    assert [turn.claim.attempt for turn in desk.runner.running] == [0]

    desk.runner.turns[0].ends.set()
    await desk.until(lambda: [turn.claim.attempt for turn in desk.runner.running] == [2])
    await desk.ring(3)
    await desk.until(lambda: desk.slots.waiting == 1)

    assert len(desk.runner.running) == 1
    desk.runner.turns[1].ends.set()
    await desk.until(lambda: [turn.claim.lease.conversation_id for turn in desk.runner.running] == [conversation(3)])


async def test_a_drain_claims_no_more_and_asks_turns_to_hand_over() -> None:
    desk = Desk()
    task = asyncio.create_task(desk.loop.run())
    await desk.ring(1)
    await desk.until_running(1)

    desk.loop.drain()
    await desk.ring(2)
    await asyncio.wait_for(task, 5)

    assert desk.runner.turns[0].calls == ["handover"]
    assert desk.leases.claimed == [conversation(1)]


async def test_a_drain_waits_for_its_turns_and_cuts_them_short_in_the_end() -> None:
    desk = Desk()
    task = asyncio.create_task(desk.loop.run())
    await desk.ring(1)
    await desk.until_running(1)
    (turn,) = desk.runner.turns
    turn.request_handover = lambda: None  # type: ignore[method-assign]

    desk.loop.drain()
    await desk.until(lambda: desk.doorbells.waiting == desk.slots.waiting == 0)
    assert (task.done(), turn.running, turn.calls) == (False, True, [])
    desk.loop.interrupt()

    await asyncio.wait_for(task, 5)
    assert turn.calls == ["interrupt"]


async def test_a_drain_releases_a_suspect_turn_that_still_waits() -> None:
    desk = Desk()
    desk.leases.attempts[conversation(2)] = 2
    task = asyncio.create_task(desk.loop.run())
    await desk.ring(1)
    await desk.until_running(1)
    desk.runner.turns[0].request_handover = lambda: None  # type: ignore[method-assign]
    await desk.ring(2)
    await desk.until(lambda: desk.slots.running == 2)

    desk.loop.drain()

    await desk.until(lambda: desk.slots.running == 1)
    assert desk.runner.turns[1].calls == ["handover", "interrupt"]
    desk.loop.interrupt()
    await asyncio.wait_for(task, 5)


async def test_a_turn_over_a_bound_leaves_its_slot_to_another_and_is_rung_again() -> None:
    async with working(Desk(slots=1)) as desk:
        desk.leases.better[conversation(1)] = conversation(2)

        await desk.ring(1)
        await desk.until_running(1)
        assert desk.leases.claimed == [conversation(2)]
        desk.runner.turns[0].ends.set()

        await desk.until(lambda: desk.leases.claimed == [conversation(2), conversation(1)])


async def test_extra_slots_are_for_users_without_turns_until_a_turn_is_idle() -> None:
    async with working(Desk(slots=1, extra=2)) as desk:
        await desk.ring(1)
        await desk.until_running(1)
        desk.leases.extra.append(conversation(2))
        await desk.until_running(2)
        desk.runner.turns[0].idle_s = desk.runner.turns[1].idle_s = LEND_AFTER_S

        await desk.until(lambda: SlotKind.LENT in desk.leases.slots_asked_for)
        desk.leases.extra += [conversation(3), conversation(4)]
        await desk.until_running(3)

        assert desk.leases.slots_asked_for[0] is SlotKind.RESERVED
        assert desk.leases.extra == [conversation(4)], "a worker has no more extra slots than it was given"


@pytest.mark.parametrize("lane", [Lane.REGISTERED, Lane.CONTROL])
async def test_a_lease_counts_from_the_moment_it_was_asked_for(desk: Desk, lane: Lane) -> None:
    desk.leases.answer_s = 10.0

    await desk.ring(1, lane)
    await desk.until(lambda: bool(desk.runner.turns) and hasattr(desk.runner.turns[0], "confirmed_at"))

    assert desk.runner.turns[0].confirmed_at == 0.0


async def test_a_lease_of_an_extra_slot_counts_from_the_moment_it_was_asked_for() -> None:
    async with working(Desk(slots=0, extra=1)) as desk:
        desk.leases.answer_s = 10.0
        desk.leases.extra = [conversation(1)]
        await desk.until_running(1)

        assert desk.runner.turns[0].confirmed_at == 0.0
