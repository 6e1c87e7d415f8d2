"""Event streams in memory: both sides, shared by writers and readers."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress

from everturn.core.errors import StaleFence, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.stream import ERASED_FENCE, Entry, EventsLost, FollowSet


class MemoryEvents:
    """Implements EventWriter and EventReader. While `down` every call raises Unavailable."""

    def __init__(self) -> None:
        self.down = False
        self._entries: dict[ConversationId, list[Entry]] = {}
        self._last: dict[ConversationId, EventCursor] = {}
        self._changed = asyncio.Condition()
        self._changes = 0

    def lose_all(self) -> None:
        """Removes everything, as FLUSHALL does."""
        self._entries.clear()
        self._last.clear()

    async def load_last(self, conversation_id: ConversationId) -> EventCursor | None:
        self._check()
        return self._last.get(conversation_id)

    async def load_last_of(self, conversation_ids: Sequence[ConversationId]) -> Mapping[ConversationId, EventCursor]:
        self._check()
        return {each: self._last[each] for each in conversation_ids if each in self._last}

    async def load_newest(
        self, conversation_id: ConversationId, *, max_entries: int, before: EventCursor | None = None
    ) -> tuple[Entry, ...]:
        self._check()
        kept = self._entries.get(conversation_id, [])
        return tuple([entry for entry in kept if before is None or entry.events[-1].id < before][-max_entries:])

    async def publish(
        self,
        conversation_id: ConversationId,
        entry: Entry,
        *,
        after: EventCursor | None,
        owner: Principal | None = None,
    ) -> None:
        self._check()
        last, entry_id = self._last.get(conversation_id), entry.events[-1].id
        if last is not None and last.fence > entry_id.fence:
            raise StaleFence(conversation_id)
        if last == entry_id:
            return
        if (after is not None and (last or ORIGIN) != after) or (last is not None and last >= entry_id):
            raise EventsLost(conversation_id)
        async with self._changed:
            self._entries.setdefault(conversation_id, []).append(entry)
            self._last[conversation_id] = entry_id
            self._note_change()

    async def erase(self, conversation_id: ConversationId) -> None:
        self._check()
        self._entries.pop(conversation_id, None)
        self._last[conversation_id] = EventCursor(ERASED_FENCE, 0)

    async def load_after(
        self, conversation_id: ConversationId, after: EventCursor, *, max_entries: int
    ) -> tuple[Entry, ...]:
        self._check()
        entries = self._entries.get(conversation_id, ())
        return tuple(entry for entry in entries if entry.events[-1].id > after)[:max_entries]

    async def follow(self, conversations: FollowSet) -> AsyncGenerator[tuple[ConversationId, Entry]]:
        waker = asyncio.create_task(self._run_waker(conversations))
        sent: dict[ConversationId, EventCursor] = {}
        try:
            while True:
                self._check()
                seen = self._changes
                cursors = conversations.cursors()
                sent = {conversation: at for conversation, at in sent.items() if conversation in cursors}
                found = [
                    (conversation, entry)
                    for conversation, cursor in cursors.items()
                    for entry in self._entries.get(conversation, ())
                    if entry.events[-1].id > max(cursor, sent.get(conversation, cursor))
                ]
                for conversation, entry in found:
                    sent[conversation] = entry.events[-1].id
                    yield conversation, entry
                if not found:
                    await self._wait_past(seen)
        finally:
            waker.cancel()
            with suppress(asyncio.CancelledError):
                await waker

    async def _wait_past(self, seen: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._changes != seen)

    async def _run_waker(self, conversations: FollowSet) -> None:
        while True:
            await conversations.changed()
            async with self._changed:
                self._note_change()

    def _note_change(self) -> None:
        self._changes += 1
        self._changed.notify_all()

    def _check(self) -> None:
        if self.down:
            raise Unavailable("The event streams are down.")
