import asyncio
from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from chat_proc.worker.heartbeat import STALL_S, Heartbeat
from everturn.core.errors import Unavailable
from everturn.core.ids import ConversationId
from everturn.turns.model import Claim, Lease
from everturn_testing.core import FixedClock

ONE, TWO = ConversationId("conv_1"), ConversationId("conv_2")


class Turn:
    def __init__(self, fence: int = 1) -> None:
        self.fence = fence
        self.lost = False
        self.is_releasing = False
        self.left_behind = False
        self.rung = 0
        self.stalled_s = 0.0
        self.seen: list[int] = []
        self.confirmed: list[float] = []

    def notice_inbox(self, inbox_seq: int) -> None:
        self.seen.append(inbox_seq)

    def confirm_lease(self, at_s: float) -> None:
        self.confirmed.append(at_s)

    def stalled_for_s(self) -> float:
        return self.stalled_s

    def describe(self) -> str:
        return "turn_1: model call for 3 s; last progress 3 s ago"

    def ring_inbox(self) -> None:
        self.rung += 1

    def lose_lease(self) -> None:
        self.lost = True


class Leases:
    """Answers renewals with `held`; `away` and `hanging` are a database out of reach."""

    def __init__(self) -> None:
        self.held: dict[ConversationId, int | None] = {}
        self.asked: list[Mapping[ConversationId, int]] = []
        self.away = False
        self.answer = asyncio.Event()
        self.answer.set()

    async def renew(self, held: Mapping[ConversationId, int]) -> Mapping[ConversationId, int | None]:
        self.asked.append(held)
        if self.away:
            raise Unavailable()
        await self.answer.wait()
        return self.held

    async def try_claim(self, conversation_id: ConversationId) -> Claim | None:
        raise NotImplementedError

    async def release(self, lease: Lease, *, requeue: bool) -> bool:
        raise NotImplementedError


@pytest.fixture
def leases() -> Leases:
    return Leases()


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def heartbeat(leases: Leases, clock: FixedClock) -> Heartbeat:
    return Heartbeat(leases, clock, lease_s=15.0)


async def test_all_leases_are_renewed_in_one_call_and_hear_of_their_inboxes(
    heartbeat: Heartbeat, leases: Leases
) -> None:
    one, two = Turn(3), Turn(4)
    heartbeat.hold(ONE, one, 0.0)
    heartbeat.hold(TWO, two, 0.0)
    leases.held = {ONE: 7, TWO: 8}

    await heartbeat.beat()

    assert leases.asked == [{ONE: 3, TWO: 4}]
    assert (one.seen, two.seen) == ([7], [8])


async def test_without_turns_the_database_is_not_queried(heartbeat: Heartbeat, leases: Leases) -> None:
    await heartbeat.beat()

    assert leases.asked == []


async def test_a_lease_that_was_not_renewed_is_lost(heartbeat: Heartbeat, leases: Leases) -> None:
    one, two = Turn(), Turn()
    heartbeat.hold(ONE, one, 0.0)
    heartbeat.hold(TWO, two, 0.0)
    leases.held = {TWO: 1}

    await heartbeat.beat()

    assert (one.lost, two.lost) == (True, False)
    await heartbeat.beat()
    assert list(leases.asked[-1]) == [TWO]


async def test_a_lease_released_during_the_renewal_is_not_lost(heartbeat: Heartbeat, leases: Leases) -> None:
    turn = Turn()
    heartbeat.hold(ONE, turn, 0.0)
    turn.is_releasing = True
    leases.held = {}

    await heartbeat.beat()
    await heartbeat.beat()

    assert not turn.lost
    assert len(leases.asked) == 1


async def test_a_lease_that_can_not_be_confirmed_is_given_up_before_it_runs_out(
    heartbeat: Heartbeat, leases: Leases, clock: FixedClock
) -> None:
    turn = Turn()
    heartbeat.hold(ONE, turn, 0.0)
    leases.away = True

    clock.advance(13.4)
    await heartbeat.beat()
    assert not turn.lost
    clock.advance(0.1)
    await heartbeat.beat()

    assert turn.lost


async def test_a_confirmation_counts_from_the_moment_it_was_asked_for(
    heartbeat: Heartbeat, leases: Leases, clock: FixedClock
) -> None:
    turn = Turn()
    heartbeat.hold(ONE, turn, 0.0)
    leases.held = {ONE: 1}
    leases.answer.clear()
    beating = asyncio.create_task(heartbeat.beat())
    await asyncio.sleep(0)
    clock.advance(2)
    leases.answer.set()
    await beating
    leases.away = True

    clock.advance(11.5)
    await heartbeat.beat()

    assert turn.lost


async def test_a_late_answer_to_a_claim_makes_no_lease_younger(
    heartbeat: Heartbeat, leases: Leases, clock: FixedClock
) -> None:
    turn = Turn()
    requested_at_s = clock.monotonic()
    clock.advance(10)
    heartbeat.hold(ONE, turn, requested_at_s)
    leases.away = True

    clock.advance(3.5)
    await heartbeat.beat()

    assert turn.confirmed == [requested_at_s]
    assert turn.lost


async def test_a_lease_that_was_held_but_not_renewed_is_not_confirmed(
    heartbeat: Heartbeat, leases: Leases, clock: FixedClock
) -> None:
    turn = Turn()
    heartbeat.hold(ONE, turn, 0.0)
    leases.held = {ONE: None}

    clock.advance(10)
    await heartbeat.beat()
    assert (turn.confirmed, turn.seen, turn.lost) == ([0.0], [], False)
    clock.advance(3.5)
    leases.away = True
    await heartbeat.beat()

    assert turn.lost


async def test_a_database_that_hangs_is_given_up_in_time_too(leases: Leases) -> None:
    turn = Turn()
    clock = FixedClock()
    heartbeat = Heartbeat(leases, clock, lease_s=0.1)
    heartbeat.hold(ONE, turn, 0.0)
    leases.answer.clear()
    clock.advance(0.089)

    await asyncio.wait_for(heartbeat.beat(), 5)
    clock.advance(0.002)
    await asyncio.wait_for(heartbeat.beat(), 5)

    assert turn.lost


async def test_a_turn_that_ended_during_the_renewal_is_left_alone(heartbeat: Heartbeat, leases: Leases) -> None:
    old, new = Turn(1), Turn(2)
    heartbeat.hold(ONE, old, 0.0)
    leases.answer.clear()
    beating = asyncio.create_task(heartbeat.beat())
    await asyncio.sleep(0)

    heartbeat.drop(ONE, old)
    heartbeat.hold(ONE, new, 0.0)
    leases.answer.set()
    await beating

    assert not old.lost
    assert not new.lost


async def test_a_slow_turn_does_not_end_the_renewals_of_its_successor(heartbeat: Heartbeat, leases: Leases) -> None:
    old, new = Turn(1), Turn(2)
    heartbeat.hold(ONE, old, 0.0)
    heartbeat.hold(ONE, new, 0.0)

    heartbeat.drop(ONE, old)
    await heartbeat.beat()

    assert leases.asked == [{ONE: 2}]


async def test_a_bell_reaches_the_turn_that_runs_here(heartbeat: Heartbeat) -> None:
    turn = Turn()
    heartbeat.hold(ONE, turn, 0.0)

    heartbeat.ring_inbox(ONE)
    heartbeat.ring_inbox(TWO)

    assert turn.rung == 1


async def test_it_beats_until_it_is_cancelled(leases: Leases) -> None:
    heartbeat = Heartbeat(leases, FixedClock(), lease_s=0.01)
    heartbeat.hold(ONE, Turn(), 0.0)
    leases.held = {ONE: 1}
    task = asyncio.create_task(heartbeat.run())

    async with asyncio.timeout(5):
        while len(leases.asked) < 3:  # noqa: ASYNC110 - the heartbeat has no event for it
            await asyncio.sleep(0.001)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_stalled_turn_is_released_and_its_tasks_are_logged(heartbeat: Heartbeat, leases: Leases) -> None:
    stuck, busy = Turn(3), Turn(4)
    heartbeat.hold(ONE, stuck, 0.0)
    heartbeat.hold(TWO, busy, 0.0)
    leases.held = {ONE: 0, TWO: 0}
    stuck.stalled_s, busy.stalled_s = STALL_S + 1, STALL_S - 1

    with capture_logs() as logs:
        await heartbeat.beat()

    assert stuck.lost
    assert not busy.lost
    assert leases.asked == [{TWO: 4}]
    stalled = next(line for line in logs if "no progress" in line["event"])
    assert stalled["conversation_id"] == ONE
    assert any("test_a_stalled_turn_is_released" in task for task in stalled["tasks"])


async def test_a_renewal_without_an_answer_is_an_outage_for_the_time_of_a_lease(
    heartbeat: Heartbeat, leases: Leases, clock: FixedClock
) -> None:
    turn = Turn()
    heartbeat.hold(ONE, turn, clock.monotonic())
    assert not heartbeat.saw_outage(ONE, turn)

    leases.away = True
    await heartbeat.beat()

    assert heartbeat.saw_outage(ONE, turn)
    clock.advance(15.1)
    assert not heartbeat.saw_outage(ONE, turn)


async def test_a_turn_that_an_outage_took_may_wind_up_for_longer_than_a_lease(
    heartbeat: Heartbeat, leases: Leases, clock: FixedClock
) -> None:
    turn, other = Turn(), Turn()
    heartbeat.hold(ONE, turn, clock.monotonic())
    clock.advance(13.5)
    leases.away = True
    await heartbeat.beat()
    assert turn.lost

    clock.advance(20.0)

    assert heartbeat.saw_outage(ONE, turn)
    assert not heartbeat.saw_outage(ONE, other)
    heartbeat.drop(ONE, turn)
    assert not heartbeat.saw_outage(ONE, turn)


async def test_a_renewal_on_a_hanging_server_counts_as_an_outage(
    clock: FixedClock,
) -> None:
    may_end, cleans_up = asyncio.Event(), asyncio.Event()

    class Hanging(Leases):
        async def renew(self, held: Mapping[ConversationId, int]) -> Mapping[ConversationId, int | None]:
            try:
                await asyncio.Event().wait()
            finally:
                cleans_up.set()
                await may_end.wait()
                clock.advance(5.0)
            raise AssertionError

    hanging, turn = Heartbeat(Hanging(), clock, lease_s=0.6), Turn()
    hanging.hold(ONE, turn, clock.monotonic())

    async with asyncio.timeout(10):
        await hanging.beat()
        await cleans_up.wait()

    assert hanging.saw_outage(ONE, turn)
    may_end.set()


async def test_a_renewal_that_a_stalled_process_missed_is_no_outage(
    clock: FixedClock,
) -> None:
    class Stalled(Leases):
        async def renew(self, held: Mapping[ConversationId, int]) -> Mapping[ConversationId, int | None]:
            clock.advance(9.0)
            raise Unavailable()

    stalled = Heartbeat(Stalled(), clock, lease_s=15.0)
    turn = Turn()
    stalled.hold(ONE, turn, clock.monotonic())

    await stalled.beat()

    assert not stalled.saw_outage(ONE, turn)


async def test_what_turns_and_tasks_do_is_logged_on_request(heartbeat: Heartbeat) -> None:
    heartbeat.hold(ONE, Turn(3), 0.0)

    with capture_logs() as logs:
        heartbeat.log_turns()

    (line,) = logs
    assert line["turns"] == ["conv_1 turn_1: model call for 3 s; last progress 3 s ago"]
    assert any("test_what_turns_and_tasks_do" in task for task in line["tasks"])
