from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

from chat_proc.worker.announcing import MAX_DEATHS, SCAN_PAGE_ENTRIES, Announcer
from chat_proc.worker.ringing import Ringer
from everturn.core.errors import Unavailable
from everturn.core.identity import Lane, Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.retry import RetryPolicy
from everturn.events.cursor import EventCursor
from everturn.events.model import ChatComplete, ChatError, ChatRewind, ConvStatus, ConvTitle
from everturn.events.stream import EncodedEvent, Entry
from everturn.models.port import ModelFailed
from everturn.timeline.turns import TurnStatus
from everturn.turns.model import Lease
from everturn_testing.events.events import MemoryEvents
from everturn_testing.models.scripted_model import Fail
from everturn_testing.turns.leases import MemoryLeases
from everturn_testing.turns.reading import NoSweeps


async def end_unannounced(bench: Bench, failpoint: str = "turn.after_c3") -> None:
    await bench.say("Hello.")
    await bench.hire(failpoint=f"{failpoint}:1:raise").work()
    bench.expire_lease()


async def test_an_unpublished_end_is_published_from_the_rows() -> None:
    bench = Bench(answer("Done."))
    await end_unannounced(bench)
    bench.events.lose_all()

    await bench.work()

    events = [event.data for event in await bench.published()]
    assert [type(data) for data in events] == [ChatRewind, ConvTitle, ChatComplete, ConvStatus]
    assert bench.platform.turns[bench.turn_rows[0].id].announced


async def test_a_failed_turn_leaves_its_conversation_in_error() -> None:
    bench = Bench([Fail(ModelFailed("down"))])
    await end_unannounced(bench)
    bench.events.lose_all()

    await bench.work()

    published = await bench.published()
    assert isinstance(published[-2].data, ChatError)
    assert published[-1].data == ConvStatus(state="error")
    await check_conversation(bench, ends_may_repeat=True)


@pytest.mark.parametrize("failpoint", ["turn.after_c3", "turn.published"])
async def test_an_end_published_by_a_dead_worker_is_not_repeated(failpoint: str) -> None:
    bench = Bench(answer("Done."))
    await end_unannounced(bench, failpoint)
    assert not bench.platform.turns[bench.turn_rows[0].id].announced

    await bench.work()

    events = [event.data for event in await bench.published()]
    assert [isinstance(data, ChatComplete) for data in events].count(True) == 1
    assert isinstance(events[-1], ConvStatus)
    assert bench.platform.turns[bench.turn_rows[0].id].announced
    await check_conversation(bench)


async def test_an_end_deep_in_the_stream_is_not_published_again() -> None:
    bench = Bench(answer("One."), answer("Two."))
    await end_unannounced(bench)
    last = (await bench.published())[-1].id
    assert last is not None
    for n in range(2 * SCAN_PAGE_ENTRIES):
        said = EventCursor(1, 100 + n)
        await bench.events.publish(bench.conversation_id, Entry(said, (EncodedEvent(said, "x", b"{}"),)), after=None)

    await bench.work()

    assert bench.platform.turns[bench.turn_rows[0].id].announced
    entries = await bench.events.load_newest(bench.conversation_id, max_entries=1_000)
    types = [event.type for entry in entries for event in entry.events]
    assert types.count("chat.complete") == 1


async def test_an_end_that_kills_its_announcers_is_skipped() -> None:
    bench = Bench(answer("Done."))
    await end_unannounced(bench)
    bench.events.lose_all()
    row = bench.platform.turns[bench.turn_rows[0].id]
    row.turn = replace(row.turn, attempt=MAX_DEATHS)

    await bench.work()

    assert row.announced
    (entry,) = await bench.events.load_newest(bench.conversation_id, max_entries=9)
    assert [event.type for event in entry.events] == ["conv.status"]
    assert entry.prev not in {event.id for event in entry.events}
    assert entry.prev > EventCursor(2, 0)
    assert bench.platform.conversations[bench.conversation_id].cursor == entry.events[-1].id


async def test_a_skipped_end_keeps_a_waiting_conversation_waiting() -> None:
    mail = DemoTool("demo.send", requires_approval=True)
    bench = Bench(answer("One."), call("demo.send", {"text": "x"}), answer("Two."), tools=[mail])
    await end_unannounced(bench)
    row = bench.platform.turns[bench.turn_rows[0].id]
    await bench.say("Second.")
    await bench.work()
    assert bench.turn_rows[1].status is TurnStatus.WAITING
    bench.events.lose_all()
    row.announced, row.turn = False, replace(row.turn, attempt=MAX_DEATHS)

    await bench.work()

    assert row.announced
    assert [event.data for event in await bench.published()] == [ConvStatus(state="waiting")]


async def test_a_redis_that_is_down_is_no_death_but_counts_as_a_try_that_failed() -> None:
    bench = Bench(answer("Done."))
    await end_unannounced(bench)
    bench.events.down = True
    before = failed()

    await bench.hire().run_one()

    assert bench.platform.turns[bench.turn_rows[0].id].turn.attempt == 0
    assert failed() == before + 1


def failed() -> float:
    return REGISTRY.get_sample_value("everturn_announcements_failed_total") or 0


async def test_an_end_is_not_published_while_the_stream_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(answer("Done."))
    await end_unannounced(bench)
    reported = await bench.published()

    async def refuse(*_: object, **__: object) -> tuple[()]:
        raise Unavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(bench.events, "load_newest", refuse)
        await bench.hire().run_one()
    row = bench.platform.turns[bench.turn_rows[0].id]
    assert (row.turn.attempt, row.announced) == (0, False)
    assert await bench.published() == reported

    await bench.work()
    await check_conversation(bench)


async def test_an_end_that_arrives_during_the_search_is_published_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(answer("Done."))
    await end_unannounced(bench)
    late = await bench.events.load_newest(bench.conversation_id, max_entries=1_000)
    bench.events.lose_all()
    looked = 0

    async def look_before_it_arrives(conversation_id: ConversationId, **how: Any) -> tuple[Entry, ...]:
        nonlocal looked
        looked += 1
        found = await MemoryEvents.load_newest(bench.events, conversation_id, **how)
        if looked == 1:
            for entry in late:
                await bench.events.publish(conversation_id, entry, after=None)
        return found

    monkeypatch.setattr(bench.events, "load_newest", look_before_it_arrives)
    await bench.hire().run_one()
    monkeypatch.undo()

    assert looked == 2
    assert [type(event.data) for event in await bench.published()].count(ChatComplete) == 1
    assert bench.platform.turns[bench.turn_rows[0].id].announced
    await check_conversation(bench)


async def test_a_growing_stream_leaves_the_end_to_the_sweeper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(answer("Done."))
    await end_unannounced(bench)
    bench.events.lose_all()
    reads: list[int] = []

    async def go_on(conversation_id: ConversationId, **_: object) -> tuple[()]:
        reads.append(len(reads) + 1)
        said = EventCursor(1, 100 * len(reads))
        await bench.events.publish(conversation_id, Entry(said, (EncodedEvent(said, "x", b"{}"),)), after=None)
        return ()

    monkeypatch.setattr(bench.events, "load_newest", go_on)
    before = failed()
    await bench.hire().run_one()
    monkeypatch.undo()

    assert reads == [1, 2, 3]
    assert failed() == before + 1
    assert await bench.doorbells.next_ring([Lane.REGISTERED], timeout_s=0.01) is None, (
        "the sweeper rings, and backs off"
    )
    assert not bench.platform.turns[bench.turn_rows[0].id].announced


class LosingEvents(MemoryEvents):
    """Each entry goes in, and its answer is lost the first time."""

    answers: bool = True

    async def publish(
        self,
        conversation_id: ConversationId,
        entry: Entry,
        *,
        after: EventCursor | None,
        owner: Principal | None = None,
    ) -> None:
        await super().publish(conversation_id, entry, after=after)
        self.answers = not self.answers
        if not self.answers:
            raise Unavailable("the answer was lost")


async def test_an_end_whose_answer_was_lost_is_sent_again_as_it_is() -> None:
    bench = Bench(answer("Done."))
    await end_unannounced(bench)
    row = bench.platform.turns[bench.turn_rows[0].id]
    events = LosingEvents()
    claim = await MemoryLeases(bench.platform, owner="worker-1", ttl_s=15.0).try_claim(bench.conversation_id)
    assert claim is not None

    announcer = build_announcer(bench, writer=events)
    cursor, announced = await announcer.announce_ended(claim, row.turn.id, claim.cursor)

    (entry,) = await events.load_newest(bench.conversation_id, max_entries=9)
    assert [event.type for event in entry.events] == ["chat.rewind", "conv.title", "chat.complete", "conv.status"]
    assert entry.events[-1].id == cursor
    assert announced and row.announced


class LosingLeases(MemoryLeases):
    """Each note of a try is written, and its answer is lost the first time."""

    answers: bool = False

    async def save_announce_attempts(self, lease: Lease, turn_id: TurnId, attempts: int) -> None:
        await super().save_announce_attempts(lease, turn_id, attempts)
        self.answers = not self.answers
        if self.answers:
            raise Unavailable("the answer was lost")


async def test_a_retried_save_of_an_attempt_counts_once() -> None:
    bench = Bench(answer("Done."))
    await end_unannounced(bench)
    bench.events.lose_all()
    row = bench.platform.turns[bench.turn_rows[0].id]
    row.turn = replace(row.turn, attempt=MAX_DEATHS - 1)
    claim = await MemoryLeases(bench.platform, owner="worker-1", ttl_s=15.0).try_claim(bench.conversation_id)
    assert claim is not None

    announcer = build_announcer(bench, leases=LosingLeases(bench.platform))
    await announcer.announce_ended(claim, row.turn.id, claim.cursor)

    assert row.turn.attempt == MAX_DEATHS
    assert row.announced
    assert [type(event.data) for event in await bench.published()] == [ChatRewind, ConvTitle, ChatComplete, ConvStatus]


async def test_a_new_turn_begins_after_the_gap_of_a_skipped_end() -> None:
    bench = Bench(answer("One."), answer("Two."))
    await end_unannounced(bench)
    before = (await bench.published())[-1].id
    row = bench.platform.turns[bench.turn_rows[0].id]
    row.turn = replace(row.turn, attempt=MAX_DEATHS)
    await bench.say("Second.")

    await bench.work()

    assert row.announced
    entries = await bench.events.load_newest(bench.conversation_id, max_entries=1_000)
    first = next(entry for entry in entries if entry.events[0].id.fence == 2)
    assert first.prev == EventCursor(2, 1)
    assert str(first.prev) != before


async def test_the_last_id_that_clients_may_have_is_noted_with_the_end() -> None:
    bench = Bench(answer("Done."))
    await bench.say("Hello.")

    await bench.work()

    last = (await bench.published())[-1].id
    assert str(bench.platform.conversations[bench.conversation_id].cursor) == last


async def test_two_ends_and_a_new_turn_under_one_fence_number_their_events_on() -> None:
    bench = Bench(answer("One."), answer("Two."), answer("Three."))
    await end_unannounced(bench)
    bench.platform.conversations[bench.conversation_id].lease_owner = None
    await bench.say("Second.")
    row = bench.platform.turns[bench.turn_rows[0].id]
    await bench.hire().run_one()
    row.announced = False
    await bench.say("Third.")

    await bench.work()

    await check_conversation(bench, ends_may_repeat=True)


async def test_an_end_stays_unannounced_while_redis_is_down() -> None:
    bench = Bench(answer("Done."))
    await end_unannounced(bench)
    bench.events.down = True

    await bench.hire().run_one()

    assert not bench.platform.turns[bench.turn_rows[0].id].announced
    bench.events.down = False
    await bench.work()
    await check_conversation(bench, ends_may_repeat=True)


async def test_nothing_rings_when_no_work_is_left() -> None:
    bench = Bench(answer("One."))
    await bench.say("Hello.")

    await bench.hire().run_one()

    assert await bench.doorbells.next_ring([Lane.REGISTERED], timeout_s=0.01) is None


async def test_a_lane_that_can_not_be_rung_does_not_keep_the_lease() -> None:
    bench = Bench(answer("One."), answer("Two."))
    bench.doorbells.down = True
    await bench.say("Hello.")

    await bench.work()

    assert bench.platform.conversations[bench.conversation_id].lease_owner is None


class LeasesBehindABrokenLink(MemoryLeases):
    """The first release does not reach the database."""

    broken = True

    async def release(self, lease: Lease, *, requeue: bool) -> bool:
        if self.broken:
            self.broken = False
            raise Unavailable()
        return await super().release(lease, requeue=requeue)


async def test_a_lease_is_released_after_a_short_database_outage() -> None:
    bench = Bench()
    await bench.say("Hello.")
    leases = LeasesBehindABrokenLink(bench.platform, owner="worker-1", ttl_s=15.0)
    claim = await leases.try_claim(bench.conversation_id)
    assert claim is not None
    announcer = Announcer(
        leases=leases,
        timelines=bench.hire().timelines,
        turns=bench.turns,
        writer=bench.events,
        ringer=Ringer(bench.doorbells, NoSweeps()),
        clock=bench.clock,
        retries=RetryPolicy((0.0,)),
    )

    await announcer.release(claim.lease, requeue=True)

    assert bench.platform.conversations[bench.conversation_id].lease_owner is None
    assert await bench.doorbells.next_ring([Lane.REGISTERED], timeout_s=0.01) == bench.conversation_id


def build_announcer(bench: Bench, leases: MemoryLeases | None = None, writer: MemoryEvents | None = None) -> Announcer:
    return Announcer(
        leases=leases or MemoryLeases(bench.platform),
        timelines=bench.hire().timelines,
        turns=bench.turns,
        writer=writer or bench.events,
        ringer=Ringer(bench.doorbells, NoSweeps()),
        clock=bench.clock,
        retries=RetryPolicy((0.0,)),
    )
