"""The contract of EventWriter and EventReader as tests; a subclass or its module defines the fixture `events`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from everturn.core.errors import StaleFence
from everturn.core.ids import ConversationId
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.stream import EncodedEvent, Entry, EventReader, EventsLost, EventWriter
from everturn_testing.core import SequentialIds

_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Events:
    """Both ends of the streams under test."""

    writer: EventWriter
    reader: EventReader
    eraser: EventWriter


@dataclass(slots=True)
class Follows:
    """Implements FollowSet; a test adds conversations and moves the cursors itself."""

    followed: dict[ConversationId, EventCursor] = field(default_factory=dict[ConversationId, EventCursor])
    added: asyncio.Queue[ConversationId] = field(default_factory=asyncio.Queue[ConversationId])

    def cursors(self) -> dict[ConversationId, EventCursor]:
        return dict(self.followed)

    def find_cursor(self, conversation_id: ConversationId) -> EventCursor | None:
        return self.followed.get(conversation_id)

    async def changed(self) -> list[ConversationId]:
        return [await self.added.get()]

    def add(self, conversation_id: ConversationId, cursor: EventCursor) -> None:
        self.followed[conversation_id] = cursor
        self.added.put_nowait(conversation_id)


def entry(fence: int, first: int, last: int, *, prev: EventCursor | None = None) -> Entry:
    """Events `first` to `last` of a fence, following the event before them unless `prev` names another."""
    events = tuple(
        EncodedEvent(EventCursor(fence, n), "chat.delta", b'{"n":%d}\n\x00' % n) for n in range(first, last + 1)
    )
    return Entry(prev or EventCursor(fence, first - 1), events)


class EventsContract:
    """Required of every pair of EventWriter and EventReader."""

    async def test_the_writer_reads_its_newest_entries_oldest_first(self, events: Events) -> None:
        conversation_id = SequentialIds().conversation()
        entries = [entry(1, 1, 3, prev=ORIGIN), entry(1, 4, 4), entry(2, 5, 6, prev=EventCursor(1, 4))]
        for each in entries:
            await events.writer.publish(conversation_id, each, after=each.prev)

        assert await events.writer.load_newest(conversation_id, max_entries=2) == tuple(entries[1:])
        assert await events.writer.load_newest(conversation_id, max_entries=9) == tuple(entries)
        older = await events.writer.load_newest(conversation_id, max_entries=1, before=entries[-1].events[-1].id)
        assert older == (entries[-2],)

    async def test_entries_come_back_as_they_were_published(self, events: Events) -> None:
        conversation_id = SequentialIds().conversation()
        one, two = entry(1, 1, 3, prev=ORIGIN), entry(1, 4, 4)

        await events.writer.publish(conversation_id, one, after=None)
        await events.writer.publish(conversation_id, two, after=EventCursor(1, 3))

        assert await events.reader.load_after(conversation_id, ORIGIN, max_entries=10) == (one, two)
        assert await events.reader.load_after(conversation_id, EventCursor(1, 3), max_entries=10) == (two,)
        assert await events.reader.load_after(conversation_id, ORIGIN, max_entries=1) == (one,)
        assert await events.reader.load_after(conversation_id, EventCursor(1, 4), max_entries=10) == ()

    async def test_the_last_id_is_known_while_there_is_a_stream(self, events: Events) -> None:
        conversation_id = SequentialIds().conversation()
        assert await events.writer.load_last(conversation_id) is None

        await events.writer.publish(conversation_id, entry(3, 7, 9), after=None)

        assert await events.writer.load_last(conversation_id) == EventCursor(3, 9)
        assert await events.reader.load_last(conversation_id) == EventCursor(3, 9)

    async def test_the_last_ids_of_many_streams_come_together(self, events: Events) -> None:
        ids = SequentialIds()
        conversations = [ids.conversation() for _ in range(450)]
        for number in (0, 199, 449):
            await events.writer.publish(conversations[number], entry(1, 1, number + 1), after=None)

        assert await events.reader.load_last_of(conversations) == {
            conversations[number]: EventCursor(1, number + 1) for number in (0, 199, 449)
        }
        assert await events.reader.load_last_of([]) == {}

    async def test_a_stale_fence_publishes_nothing(self, events: Events) -> None:
        conversation_id = SequentialIds().conversation()
        await events.writer.publish(conversation_id, entry(2, 1, 1), after=None)

        for after in (None, EventCursor(1, 49)):
            with pytest.raises(StaleFence):
                await events.writer.publish(conversation_id, entry(1, 50, 50), after=after)

        assert await events.writer.load_last(conversation_id) == EventCursor(2, 1)

    async def test_an_entry_after_a_gap_is_refused_unless_unchecked(self, events: Events) -> None:
        conversation_id = SequentialIds().conversation()
        with pytest.raises(EventsLost):
            await events.writer.publish(conversation_id, entry(1, 5, 5), after=EventCursor(1, 4))
        await events.writer.publish(conversation_id, entry(1, 1, 1), after=None)

        with pytest.raises(EventsLost):
            await events.writer.publish(conversation_id, entry(1, 5, 5), after=EventCursor(1, 4))
        await events.writer.publish(conversation_id, entry(1, 5, 5), after=None)

        assert await events.writer.load_last(conversation_id) == EventCursor(1, 5)

    async def test_an_entry_is_refused_after_a_concurrent_append(self, events: Events) -> None:
        conversation_id = SequentialIds().conversation()
        late = entry(1, 1, 1)
        await events.writer.publish(conversation_id, late, after=None)

        for read in (ORIGIN, EventCursor(1, 9)):
            with pytest.raises(EventsLost):
                await events.writer.publish(conversation_id, entry(2, 1, 1), after=read)
        await events.writer.publish(conversation_id, entry(2, 1, 1), after=EventCursor(1, 1))

        assert await events.reader.load_after(conversation_id, ORIGIN, max_entries=10) == (late, entry(2, 1, 1))

    async def test_an_entry_can_be_published_again_after_a_lost_reply(self, events: Events) -> None:
        conversation_id = SequentialIds().conversation()
        await events.writer.publish(conversation_id, entry(1, 1, 1), after=None)
        await events.writer.publish(conversation_id, entry(1, 2, 2), after=EventCursor(1, 1))

        await events.writer.publish(conversation_id, entry(1, 2, 2), after=EventCursor(1, 1))

        assert len(await events.reader.load_after(conversation_id, ORIGIN, max_entries=10)) == 2

    async def test_an_erased_stream_is_empty_and_refuses_writers(self, events: Events) -> None:
        conversation_id = SequentialIds().conversation()
        await events.writer.publish(conversation_id, entry(7, 1, 2), after=None)

        await events.eraser.erase(conversation_id)

        assert await events.reader.load_after(conversation_id, ORIGIN, max_entries=10) == ()
        for after in (None, EventCursor(7, 2)):
            with pytest.raises(StaleFence):
                await events.writer.publish(conversation_id, entry(7, 3, 3), after=after)
        await events.eraser.erase(conversation_id)
        assert await events.reader.load_after(conversation_id, ORIGIN, max_entries=10) == ()

    async def test_a_follower_gets_existing_and_new_entries(self, events: Events) -> None:
        conversation_id = SequentialIds().conversation()
        await events.writer.publish(conversation_id, entry(1, 1, 1), after=None)
        await events.writer.publish(conversation_id, entry(1, 2, 2), after=EventCursor(1, 1))
        follows = Follows({conversation_id: EventCursor(1, 1)})

        async with asyncio.timeout(_LIMIT_S), aclosing(events.reader.follow(follows)) as following:
            first = await anext(following)
            await events.writer.publish(conversation_id, entry(1, 3, 3), after=EventCursor(1, 2))
            second = await anext(following)

        assert (first, second) == ((conversation_id, entry(1, 2, 2)), (conversation_id, entry(1, 3, 3)))

    async def test_a_conversation_added_to_the_set_ends_the_wait(self, events: Events) -> None:
        ids = SequentialIds()
        quiet, lively = ids.conversation(), ids.conversation()
        await events.writer.publish(lively, entry(1, 1, 1), after=None)
        follows = Follows({quiet: ORIGIN})

        async with asyncio.timeout(_LIMIT_S), aclosing(events.reader.follow(follows)) as following:
            waiting = asyncio.create_task(_next(following))
            await asyncio.sleep(0.05)
            follows.add(lively, ORIGIN)

            assert await waiting == (lively, entry(1, 1, 1))

    async def test_a_moved_position_is_used(self, events: Events) -> None:
        conversation_id = SequentialIds().conversation()
        await events.writer.publish(conversation_id, entry(1, 1, 1), after=None)
        follows = Follows({conversation_id: ORIGIN})

        async with asyncio.timeout(_LIMIT_S), aclosing(events.reader.follow(follows)) as following:
            await anext(following)
            follows.followed[conversation_id] = EventCursor(1, 2)
            await events.writer.publish(conversation_id, entry(1, 2, 2), after=EventCursor(1, 1))
            await events.writer.publish(conversation_id, entry(1, 3, 3), after=EventCursor(1, 2))

            assert await anext(following) == (conversation_id, entry(1, 3, 3))


async def _next(following: AsyncIterator[tuple[ConversationId, Entry]]) -> tuple[ConversationId, Entry]:
    return await anext(following)
