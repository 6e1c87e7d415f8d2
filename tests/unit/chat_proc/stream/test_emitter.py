import asyncio
import threading
import time
from collections.abc import AsyncIterator

import pytest
import uvloop
from turn_harness.harness import until

from chat_proc.stream.emitter import (
    MAX_ENTRY_BYTES,
    MAX_MERGED_CHARS,
    MAX_PENDING_EVENTS,
    TEXT_GAP_S,
    Emitter,
    EventNumbering,
)
from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.model import (
    ChatCompaction,
    ChatDelta,
    ChatFollowups,
    ChatRewind,
    ChatStart,
    ConvStatus,
    ConvTitle,
    Envelope,
    encode_envelope,
    parse_envelope,
)
from everturn.events.stream import Entry, EventsLost
from everturn.events.views import TurnView
from everturn_testing.core import FixedClock
from everturn_testing.events.events import MemoryEvents

CONVERSATION, TURN = ConversationId("conv_1"), TurnId("turn_1")
VIEW = TurnView(turn_id=TURN, ordinal=1, status="running", text="Hello.")


class HeldEvents(MemoryEvents):
    """Events whose publishing a test can hold up, and let fail before or after it took effect."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()
        self.entries: list[Entry] = []
        self.calls = 0
        self.fail_before: list[Exception | None] = []
        """Raised by the next calls, from the last one; None is a call that succeeds."""
        self.fail_after: list[Exception] = []

    async def publish(
        self,
        conversation_id: ConversationId,
        entry: Entry,
        *,
        after: EventCursor | None,
        owner: Principal | None = None,
    ) -> None:
        self.calls += 1
        await self.open.wait()
        if self.fail_before and (error := self.fail_before.pop()):
            raise error
        await super().publish(conversation_id, entry, after=after)
        if entry not in self.entries:
            self.entries.append(entry)
        if self.fail_after:
            raise self.fail_after.pop()

    @property
    def events(self) -> list[Envelope]:
        return [parse_envelope(event.payload) for entry in self.entries for event in entry.events]

    @property
    def texts_sent(self) -> list[str]:
        """Deltas and titles as text, rewinds as such."""
        texts: list[str] = []
        for event in self.events:
            match event.data:
                case ChatRewind():
                    texts.append("rewind")
                case ChatDelta(text=text) | ConvTitle(title=text):
                    texts.append(text)
                case _:
                    pass
        return texts


@pytest.fixture
def stream() -> HeldEvents:
    return HeldEvents()


async def build_view() -> TurnView:
    return VIEW


def build(stream: HeldEvents, *, fence: int = 1, cursor: EventCursor = ORIGIN) -> Emitter:
    numbering = EventNumbering(FixedClock(), conversation_id=CONVERSATION, turn_id=TURN, fence=fence, after=cursor)
    emitter = Emitter(stream, numbering)
    emitter.show_committed(build_view)
    return emitter


@pytest.fixture
async def emitter(stream: HeldEvents) -> AsyncIterator[Emitter]:
    emitter = build(stream)
    task = asyncio.create_task(emitter.run())
    yield emitter
    stream.open.set()
    emitter.close()
    await asyncio.wait_for(task, 5)


def say(emitter: Emitter, text: str) -> None:
    emitter.emit(ChatDelta(channel="answer", instance=0, index=0, text=text, marker="answer"), 1)


async def test_events_get_ids_in_order_and_name_the_one_before(stream: HeldEvents, emitter: Emitter) -> None:
    for text in "abc":
        say(emitter, text)
        await emitter.flush(5)

    assert [event.id for event in stream.events] == ["1-1", "1-2", "1-3"]
    assert [str(entry.prev) for entry in stream.entries] == ["0-0", "1-1", "1-2"]
    assert stream.events[0].round == 1
    assert emitter.seal() == EventCursor(1, 3)


async def test_what_gathers_while_one_entry_is_on_its_way_makes_the_next(stream: HeldEvents, emitter: Emitter) -> None:
    stream.open.clear()
    say(emitter, "a")
    await until(lambda: stream.calls == 1)
    for text in "bcd":
        say(emitter, text)

    stream.open.set()
    assert await emitter.flush(5)

    assert stream.texts_sent == ["a", "bcd"]
    assert [event.id for event in stream.events] == ["1-1", "1-2"]
    assert emitter.seal() == EventCursor(1, 2)


async def test_a_status_goes_with_the_text_that_follows_it_soon(stream: HeldEvents, emitter: Emitter) -> None:
    emitter.emit(ConvStatus(state="running", turn_id=TURN))
    await asyncio.sleep(0)
    say(emitter, "a")
    await emitter.flush(5)

    assert [[event.type for event in entry.events] for entry in stream.entries] == [["conv.status", "chat.delta"]]


async def test_a_status_that_nothing_follows_is_sent(stream: HeldEvents, emitter: Emitter) -> None:
    emitter.emit(ConvStatus(state="running", turn_id=TURN))

    await until(lambda: len(stream.entries) == 1)


async def test_the_end_of_a_text_is_sent_with_what_follows_it(stream: HeldEvents, emitter: Emitter) -> None:
    say(emitter, "a")
    await until(lambda: len(stream.entries) == 1)
    emitter.emit(ChatDelta(channel="answer", instance=0, index=1, text="", completed=True, marker="answer"), 1)
    await asyncio.sleep(0)
    emitter.emit(ChatFollowups(items=("b",)), 1)
    await until(lambda: len(stream.entries) == 2)

    assert [event.type for event in stream.entries[1].events] == ["chat.delta", "chat.followups"]


async def test_text_that_a_model_writes_quickly_gathers_between_entries(stream: HeldEvents, emitter: Emitter) -> None:
    written, began_s = 0, time.monotonic()
    while (took_s := time.monotonic() - began_s) < 10 * TEXT_GAP_S:
        say(emitter, "a")
        written += 1
        await asyncio.sleep(0)

    assert len(stream.entries) <= 1 + 2 * took_s / TEXT_GAP_S  # timers may ring early by a part of a millisecond
    await until(lambda: len("".join(stream.texts_sent)) == written)


def test_text_can_come_at_any_time_after_an_entry() -> None:
    """The services run on uvloop, which knows no timers of less than a millisecond."""

    async def write() -> None:
        stream, loop = HeldEvents(), asyncio.get_running_loop()
        emitter = build(stream)
        task = asyncio.create_task(emitter.run())
        for n in range(100):
            say(emitter, "a")
            await until(lambda n=n: len(stream.entries) == 2 * n + 1)
            until_s = loop.time() + TEXT_GAP_S - 0.002 * n / 100
            await until(lambda until_s=until_s: loop.time() >= until_s)
            say(emitter, "b")
            say(emitter, "c")
            await until(lambda n=n: len(stream.entries) == 2 * n + 2)
        emitter.close()
        await asyncio.wait_for(task, 5)

        assert stream.texts_sent == ["a", "bc"] * 100

    uvloop.run(write())


async def test_only_neighbouring_pieces_of_one_text_become_one_event(stream: HeldEvents, emitter: Emitter) -> None:
    stream.open.clear()
    say(emitter, "a")
    await until(lambda: stream.calls == 1)
    pieces = [("answer", 1, "b"), ("thinking", 1, "c"), ("thinking", 1, "d"), ("answer", 1, "e"), ("answer", 2, "f")]
    for channel, round_number, text in pieces:
        emitter.emit(ChatDelta(channel=channel, instance=0, index=0, text=text, marker="answer"), round_number)
    emitter.emit(ConvTitle(title="g"))
    say(emitter, "x" * MAX_MERGED_CHARS)
    say(emitter, "y")

    stream.open.set()
    assert await emitter.flush(5)

    assert stream.texts_sent == ["a", "b", "cd", "e", "f", "g", "x" * MAX_MERGED_CHARS, "y"]


async def test_a_commit_covers_no_text_that_follows_it(stream: HeldEvents, emitter: Emitter) -> None:
    stream.open.clear()
    say(emitter, "a")
    await until(lambda: stream.calls == 1)
    say(emitter, "b")
    committed = emitter.seal()
    say(emitter, "c")

    stream.open.set()
    assert await emitter.flush(5)

    assert stream.texts_sent == ["a", "b", "c"]
    assert committed == EventCursor(1, 2)


async def test_the_end_of_a_text_joins_its_last_piece(stream: HeldEvents, emitter: Emitter) -> None:
    stream.open.clear()
    say(emitter, "a")
    await until(lambda: stream.calls == 1)
    say(emitter, "b")
    emitter.emit(ChatDelta(channel="answer", instance=0, index=2, text="", completed=True, marker="answer"), 1)
    say(emitter, "c")

    stream.open.set()
    assert await emitter.flush(5)

    deltas = [event.data for event in stream.events if isinstance(event.data, ChatDelta)]
    assert [(delta.text, delta.completed) for delta in deltas] == [("a", False), ("b", True), ("c", False)]


async def test_an_entry_is_bounded_and_one_large_event_goes_alone(stream: HeldEvents, emitter: Emitter) -> None:
    stream.open.clear()
    say(emitter, "a")
    await until(lambda: stream.calls == 1)
    say(emitter, "x" * (MAX_ENTRY_BYTES + 1))
    say(emitter, "y" * (MAX_ENTRY_BYTES // 2))
    say(emitter, "z" * (MAX_ENTRY_BYTES // 2))

    stream.open.set()
    assert await emitter.flush(5)

    assert [len(entry.events) for entry in stream.entries] == [1, 1, 1, 1]


async def test_what_redis_did_not_accept_is_sent_again_as_it_is(stream: HeldEvents, emitter: Emitter) -> None:
    stream.fail_before = [Unavailable("down"), Unavailable("down")]
    say(emitter, "Hel")
    say(emitter, "lo")

    assert await emitter.flush(5)

    assert stream.texts_sent == ["Hello"]
    assert stream.calls == 3


async def test_an_entry_with_a_lost_reply_is_published_once(stream: HeldEvents, emitter: Emitter) -> None:
    stream.fail_after = [Unavailable("the answer was lost")]
    say(emitter, "Hello")
    await until(lambda: stream.calls == 1)
    say(emitter, "again")

    assert await emitter.flush(5)

    assert stream.texts_sent == ["Hello", "again"]
    assert stream.entries[1].prev == stream.entries[0].events[-1].id


async def test_a_rewind_voids_an_unacknowledged_entry(stream: HeldEvents, emitter: Emitter) -> None:
    stream.fail_before = [Unavailable("down")]
    say(emitter, "void")
    await until(lambda: stream.calls == 1)
    emitter.rewind()
    say(emitter, "after")

    assert await emitter.flush(5)

    assert stream.texts_sent == ["rewind", "after"]


async def test_lost_events_are_published_again(stream: HeldEvents, emitter: Emitter) -> None:
    say(emitter, "a")
    await emitter.flush(5)
    stream.lose_all()
    say(emitter, "b")

    assert await emitter.flush(5)

    assert stream.texts_sent == ["a", "rewind", "ab"]


async def test_too_many_unsent_events_become_a_rewind(stream: HeldEvents, emitter: Emitter) -> None:
    stream.open.clear()
    say(emitter, "a")
    await until(lambda: stream.calls == 1)
    for n in range(MAX_PENDING_EVENTS + 1):
        emitter.emit(ChatDelta(channel="canvas", instance=n, index=0, text=str(n), marker="canvas"), 1)

    stream.open.set()
    assert await emitter.flush(5)

    assert stream.texts_sent == ["a", "rewind", "a", *map(str, range(MAX_PENDING_EVENTS + 1))]


async def test_a_rewind_voids_events_since_the_commit(stream: HeldEvents, emitter: Emitter) -> None:
    say(emitter, "committed")
    emitter.mark_committed(emitter.seal())
    say(emitter, "void")
    emitter.rewind()
    say(emitter, "after")

    assert await emitter.flush(5)

    assert stream.texts_sent == ["rewind", "after"]


async def test_an_event_emitted_while_a_commit_is_written_is_not_covered_by_it(
    stream: HeldEvents, emitter: Emitter
) -> None:
    say(emitter, "a")
    committed = emitter.seal()
    say(emitter, "b")
    emitter.mark_committed(committed)
    stream.fail_before = [EventsLost(CONVERSATION)]

    assert await emitter.flush(5)

    assert stream.texts_sent == ["rewind", "b"]


async def test_a_rewind_is_followed_by_no_event_whose_commit_it_shows(stream: HeldEvents, emitter: Emitter) -> None:
    stream.fail_before = [EventsLost(CONVERSATION)]
    emitter.emit(ChatStart(turn_id=TURN, ordinal=1, text="Hello."))
    emitter.mark_committed(emitter.seal())
    compacted = ChatCompaction(status="completed", reason="hard", before_tokens=9, after_tokens=5)
    for data in (ChatFollowups(items=("More?",)), compacted):
        emitter.emit(data, 1, is_committed=True)
    emitter.emit(ChatFollowups(items=("Not stored.",)), 1)

    assert await emitter.flush(5)

    rewind, *rest = [event.data for event in stream.events]
    assert isinstance(rewind, ChatRewind)
    assert rest == [compacted, ChatFollowups(items=("Not stored.",))]


async def test_the_newest_title_is_sent_again_because_a_rewind_shows_only_the_turn(
    stream: HeldEvents, emitter: Emitter
) -> None:
    stream.fail_before = [EventsLost(CONVERSATION)]
    for title in ("old", "new"):
        emitter.emit(ConvTitle(title=title))
    emitter.mark_committed(emitter.seal())
    emitter.rewind()
    say(emitter, "after")

    assert await emitter.flush(5)

    assert stream.texts_sent == ["rewind", "new", "after"]


async def test_events_during_the_preparation_of_a_rewind_follow_it(stream: HeldEvents, emitter: Emitter) -> None:
    emitter.rewind()
    await asyncio.sleep(0)
    say(emitter, "a")

    assert await emitter.flush(5)

    assert stream.texts_sent[0] == "rewind"
    assert stream.texts_sent.count("a") == 1


async def test_a_title_that_a_rewind_sends_again_outlives_the_next_rewind(
    stream: HeldEvents, emitter: Emitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat_proc.stream.emitter.MAX_ENTRY_BYTES", 10)  # each event has an entry of its own
    stream.fail_before = [Unavailable("Redis"), None, EventsLost(CONVERSATION)]
    emitter.emit(ConvTitle(title="A title"))
    await until(lambda: stream.calls == 3)
    assert stream.texts_sent == ["rewind"]
    emitter.rewind()

    assert await emitter.flush(5)

    assert stream.texts_sent == ["rewind", "rewind", "A title"]


async def test_a_second_rewind_while_the_first_is_encoded_sends_nothing_twice(
    stream: HeldEvents, emitter: Emitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoding, go_on = threading.Event(), threading.Event()

    def encode_slowly(envelope: Envelope) -> bytes:
        if isinstance(envelope.data, ChatRewind):
            encoding.set()
            assert go_on.wait(5)
        return encode_envelope(envelope)

    monkeypatch.setattr("chat_proc.stream.emitter.encode_envelope", encode_slowly)
    emitter.rewind()
    await until(encoding.is_set)
    emitter.rewind()
    say(emitter, "after")
    go_on.set()

    assert await emitter.flush(5)
    assert stream.texts_sent == ["rewind", "after"]


async def test_a_defect_while_publishing_does_not_end_the_turn(stream: HeldEvents) -> None:
    views = iter([ValueError("a row that can't be shown"), VIEW])

    async def build_next_view() -> TurnView:
        view = next(views)
        if isinstance(view, Exception):
            raise view
        return view

    emitter = build(stream)
    emitter.show_committed(build_next_view)
    task = asyncio.create_task(emitter.run())
    say(emitter, "a")
    assert await emitter.flush(5)

    emitter.rewind()
    say(emitter, "b")

    assert await emitter.flush(5)
    assert stream.texts_sent == ["a", "rewind", "b"]
    emitter.close()
    await asyncio.wait_for(task, 5)


async def test_a_commit_while_the_state_is_built_makes_a_rewind_build_it_again(stream: HeldEvents) -> None:
    building, go_on, built = asyncio.Event(), asyncio.Event(), [VIEW.model_copy(update={"text": "new"}), VIEW]

    async def build_slowly() -> TurnView:
        view = built.pop()
        building.set()
        await go_on.wait()
        return view

    emitter = build(stream)
    emitter.show_committed(build_slowly)
    task = asyncio.create_task(emitter.run())
    say(emitter, "a")
    emitter.rewind()
    await building.wait()
    say(emitter, "committed")
    emitter.mark_committed(emitter.seal())
    say(emitter, "b")
    go_on.set()

    assert await emitter.flush(5)
    (rewind,) = [event.data for event in stream.events if isinstance(event.data, ChatRewind)]
    assert rewind.turn.text == "new"
    assert stream.texts_sent[-2:] == ["rewind", "b"]
    emitter.close()
    await asyncio.wait_for(task, 5)


async def test_a_newer_fence_makes_it_stale_and_ends_it(stream: HeldEvents) -> None:
    other = build(stream, fence=2)
    mine = build(stream, fence=1)
    tasks = [asyncio.create_task(emitter.run()) for emitter in (other, mine)]
    say(other, "other")
    await other.flush(5)

    say(mine, "mine")

    assert not await mine.flush(5)
    assert mine.stale.is_set()
    say(mine, "more")
    assert not await mine.flush(5)
    assert stream.texts_sent == ["other"]
    other.close()
    await asyncio.wait_for(asyncio.gather(*tasks), 5)


async def test_an_abandoned_emitter_publishes_nothing_more(stream: HeldEvents) -> None:
    emitter = build(stream)
    say(emitter, "a")
    task = asyncio.create_task(emitter.run())

    emitter.abandon()
    emitter.close()
    await asyncio.wait_for(task, 5)

    assert stream.texts_sent == []


async def test_a_flush_gives_up_when_the_time_is_up(stream: HeldEvents, emitter: Emitter) -> None:
    stream.open.clear()
    say(emitter, "a")

    assert not await emitter.flush(0.01)


async def test_a_closed_emitter_does_not_wait_while_redis_is_down(stream: HeldEvents) -> None:
    stream.down = True
    emitter = build(stream)
    say(emitter, "a")
    emitter.close()

    await asyncio.wait_for(emitter.run(), 5)

    assert stream.texts_sent == []


async def test_an_emitter_continues_after_one_of_the_same_fence(stream: HeldEvents) -> None:
    emitter = build(stream, fence=3, cursor=EventCursor(3, 7))

    say(emitter, "a")

    assert emitter.seal() == EventCursor(3, 8)


async def test_a_new_fence_counts_from_one(stream: HeldEvents) -> None:
    emitter = build(stream, fence=4, cursor=EventCursor(3, 7))

    say(emitter, "a")

    assert emitter.seal() == EventCursor(4, 1)
