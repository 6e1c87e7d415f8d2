import asyncio
from dataclasses import replace

import pytest

from chat_proc.turn.inbox import TurnInbox
from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import SignalId, TurnId
from everturn.core.retry import RetryPolicy
from everturn.timeline.turns import Signal, SignalKind, SignalState
from everturn.turns.model import Promotion, SignalChange
from everturn_testing.core import BEGINNING
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.timelines import MemoryTimelines

ANN, TURN = Principal("acme", "main", "ann"), TurnId("turn_1")


def say(kind: SignalKind, name: str = "sig_1") -> Signal:
    return Signal(SignalId(name), TURN, kind, "text", SignalState.ACCEPTED, BEGINNING)


class Rows(MemoryTimelines):
    """`during_read` happens between asking for the rows and getting them."""

    def __init__(self) -> None:
        super().__init__(MemoryPlatform())
        self.signals: list[Signal] = []
        self.reads = 0
        self.during_read = asyncio.Event()
        self.during_read.set()
        self.failures = 0
        self.reported: list[Signal] = []

    async def load_signals(self, principal: Principal, turn_id: TurnId) -> tuple[Signal, ...]:
        self.reads += 1
        if self.failures:
            self.failures -= 1
            raise Unavailable()
        found = tuple(self.signals)
        await self.during_read.wait()
        return found


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def inbox(rows: Rows) -> TurnInbox:
    return TurnInbox(rows, ANN, TURN, 5, report=rows.reported.append, retries=RetryPolicy((0.0,)))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_first_wait_finds_earlier_signals(rows: Rows, inbox: TurnInbox) -> None:
    rows.signals = [say(SignalKind.CANCEL)]

    await asyncio.wait_for(inbox.wait_for_control(), 5)


async def test_a_followup_does_not_end_the_wait_and_a_steer_does(rows: Rows, inbox: TurnInbox) -> None:
    rows.signals = [say(SignalKind.FOLLOWUP)]
    waiting = asyncio.create_task(inbox.wait_for_control())
    await settle()
    assert not waiting.done()

    rows.signals.append(say(SignalKind.STEER, "sig_2"))
    inbox.ring()

    await asyncio.wait_for(waiting, 5)


async def test_a_ring_during_the_read_is_not_lost(rows: Rows, inbox: TurnInbox) -> None:
    rows.during_read.clear()
    waiting = asyncio.create_task(inbox.wait_for_control())
    await settle()
    rows.signals = [say(SignalKind.CANCEL)]
    inbox.ring()

    rows.during_read.set()

    await asyncio.wait_for(waiting, 5)


async def test_a_ring_whose_wait_was_cancelled_during_the_read_is_not_lost(rows: Rows, inbox: TurnInbox) -> None:
    rows.during_read.clear()
    waiting = asyncio.create_task(inbox.wait_for_control())
    await settle()
    rows.signals = [say(SignalKind.CANCEL)]
    waiting.cancel()
    await asyncio.wait({waiting})
    rows.during_read.set()

    await asyncio.wait_for(inbox.wait_for_control(), 5)


async def test_a_control_signal_is_found_by_each_wait_until_it_is_answered(rows: Rows, inbox: TurnInbox) -> None:
    rows.signals = [say(SignalKind.STEER)]
    await asyncio.wait_for(inbox.wait_for_control(), 5)
    await asyncio.wait_for(inbox.wait_for_control(), 5)

    inbox.settle([SignalChange(SignalId("sig_1"), SignalState.APPLIED, 2)])

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(inbox.wait_for_control(), 0.01)


async def test_a_higher_number_from_the_heartbeat_rings(rows: Rows, inbox: TurnInbox) -> None:
    waiting = asyncio.create_task(inbox.wait_for_control())
    await settle()
    reads = rows.reads

    inbox.notice_seq(5)
    await settle()
    assert rows.reads == reads
    inbox.notice_seq(6)
    await settle()

    assert rows.reads == reads + 1
    waiting.cancel()


async def test_what_is_seen_is_what_was_known_before_the_read(rows: Rows, inbox: TurnInbox) -> None:
    rows.during_read.clear()
    reading = asyncio.create_task(inbox.load_unseen())
    await settle()
    inbox.notice_seq(7)
    rows.during_read.set()
    await reading

    assert inbox.seen_seq == 5
    await inbox.load_unseen()
    assert inbox.seen_seq == 7


async def test_rows_are_read_again_only_after_a_ring(rows: Rows) -> None:
    inbox = TurnInbox(rows, ANN, TURN, 5, has_signals=False, report=rows.reported.append, retries=RetryPolicy((0.0,)))

    await inbox.load_unseen()
    assert (rows.reads, inbox.seen_seq) == (0, 5)
    rows.signals = [say(SignalKind.FOLLOWUP)]
    inbox.notice_seq(6)
    found = await inbox.load_unseen()

    assert await inbox.load_unseen() == found == tuple(rows.signals)
    assert (rows.reads, inbox.seen_seq) == (1, 6)


async def test_a_read_that_failed_is_made_again(rows: Rows, inbox: TurnInbox) -> None:
    rows.signals, rows.failures = [say(SignalKind.FOLLOWUP)], 2

    with pytest.raises(Unavailable):
        await inbox.load_unseen()

    assert await inbox.load_unseen() == tuple(rows.signals)


async def test_a_database_that_is_away_for_a_moment_is_asked_again(rows: Rows, inbox: TurnInbox) -> None:
    rows.failures = 1
    rows.signals = [say(SignalKind.CANCEL)]

    await asyncio.wait_for(inbox.wait_for_control(), 5)


async def test_signals_show_the_state_of_each_signal(rows: Rows, inbox: TurnInbox) -> None:
    rows.signals = [say(SignalKind.FOLLOWUP, f"sig_{n}") for n in range(3)]
    await inbox.load_unseen()

    inbox.settle([SignalChange(SignalId("sig_0"), SignalState.APPLIED, 4)])
    inbox.promote(Promotion((SignalId("sig_1"),), TurnId("turn_2"), "text"))

    reported = {signal.id: (signal.state, signal.round, signal.promoted_to) for signal in inbox.signals}
    assert reported == {
        "sig_0": (SignalState.APPLIED, 4, None),
        "sig_1": (SignalState.PROMOTED, None, "turn_2"),
        "sig_2": (SignalState.ACCEPTED, None, None),
    }


async def test_every_change_of_a_signal_is_reported_once(rows: Rows, inbox: TurnInbox) -> None:
    said = say(SignalKind.FOLLOWUP)
    edited = replace(said, text="Better.")
    retracted = replace(edited, state=SignalState.RETRACTED)

    for rows.signals in ([said], [said], [edited], [retracted], [retracted]):
        inbox.ring()
        await inbox.load_unseen()

    assert rows.reported == [said, edited, retracted]
    assert inbox.signals == (retracted,)
    assert await inbox.load_unseen() == ()


async def test_a_read_before_a_commit_does_not_report_settled_signals(rows: Rows, inbox: TurnInbox) -> None:
    rows.signals = [say(SignalKind.FOLLOWUP)]
    await inbox.load_unseen()
    rows.during_read.clear()
    inbox.ring()
    reading = asyncio.create_task(inbox.load_unseen())
    await settle()

    inbox.settle([SignalChange(SignalId("sig_1"), SignalState.APPLIED, 4)])
    rows.during_read.set()

    assert await reading == ()
    assert [signal.state for signal in rows.reported] == [SignalState.ACCEPTED]
    assert [signal.state for signal in inbox.signals] == [SignalState.APPLIED]
