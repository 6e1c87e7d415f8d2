"""The client-facing end of the event streams: what came after an id, and one wait over many conversations at once."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from redis.asyncio import Redis

from everturn.cancellation import end_tasks
from everturn.errors import Unavailable
from everturn.model.ids import ConversationId
from everturn.model.leases import EventCursor
from everturn.ports.event_stream import Entry, FollowSet
from everturn.redis.calls import GRACE_S, PUBLISH_LIMIT_S, limited
from everturn.redis.entries import Fields, read_id, stream_key, try_read_entry
from everturn.redis.last_id import load_last_id

BLOCK_MS = 5_000
ENTRIES_PER_STREAM = 100
WAKE_KEEP_S = 60


class RedisEventReader:
    """`name` is this reader's own among all that share the server: it names the stream that wakes its wait."""

    def __init__(self, client: Redis, *, name: str) -> None:
        self._client: Any = client
        self._wake_key = f"wake:{name}"

    async def load_last(self, conversation_id: ConversationId) -> EventCursor | None:
        return await load_last_id(self._client, conversation_id)

    async def load_after(
        self, conversation_id: ConversationId, after: EventCursor, *, max_entries: int
    ) -> tuple[Entry, ...]:
        async with limited(PUBLISH_LIMIT_S):
            rows = await self._client.xrange(stream_key(conversation_id), min=f"({after}", count=max_entries)
        read = (try_read_entry(read_id(raw_id), fields) for raw_id, fields in rows)
        return tuple(entry for entry in read if entry is not None)

    async def follow(self, conversations: FollowSet) -> AsyncGenerator[tuple[ConversationId, Entry]]:
        """One reading connection for all of them; a conversation that is added meanwhile ends the wait at once."""
        waker = asyncio.create_task(self._run_waker(conversations))
        cursors = _Cursors()
        wake_id = "0-0"
        try:
            while not waker.done():
                streams = cursors.build_streams(conversations.positions())
                for key, rows in await self._read({**streams, self._wake_key: wake_id}):
                    if key == self._wake_key:
                        wake_id = rows[-1][0].decode()
                        continue
                    for raw_id, fields in rows:
                        if (taken := cursors.take(key, read_id(raw_id), fields)) is not None:
                            yield taken
            raise Unavailable("The reader can't be woken.") from waker.exception()
        finally:
            await end_tasks(waker)

    async def _read(self, streams: dict[str, str]) -> list[tuple[str, list[tuple[bytes, Fields]]]]:
        async with limited(BLOCK_MS / 1_000 + GRACE_S):
            reply = await self._client.xread(streams, count=ENTRIES_PER_STREAM, block=BLOCK_MS)
        return [(key.decode(), rows) for key, rows in reply or ()]

    async def _run_waker(self, conversations: FollowSet) -> None:
        """A row in a stream, not a signal to the connection: it also wakes a wait that is about to begin."""
        while True:
            await conversations.changed()
            async with limited(PUBLISH_LIMIT_S), self._client.pipeline(transaction=False) as pipeline:
                pipeline.xadd(self._wake_key, {"": ""}, maxlen=1, approximate=False)
                pipeline.expire(self._wake_key, WAKE_KEEP_S)
                await pipeline.execute()


class _Cursors:
    """Where each stream is read on. The set's position counts, unless it has not moved since: then what was yielded."""

    def __init__(self) -> None:
        self._conversations: dict[str, ConversationId] = {}
        self._asked: dict[str, EventCursor] = {}
        self._yielded: dict[str, EventCursor] = {}

    def build_streams(self, positions: dict[ConversationId, EventCursor]) -> dict[str, str]:
        asked = {stream_key(conversation): cursor for conversation, cursor in positions.items()}
        self._conversations = {stream_key(conversation): conversation for conversation in positions}
        self._yielded = {key: at for key, at in self._yielded.items() if asked.get(key) == self._asked.get(key)}
        self._asked = asked
        return {key: str(self._yielded.get(key, cursor)) for key, cursor in asked.items()}

    def take(self, key: str, entry_id: EventCursor, fields: Fields) -> tuple[ConversationId, Entry] | None:
        """None for an entry that can't be read; the reading goes on behind it."""
        self._yielded[key] = entry_id
        entry = try_read_entry(entry_id, fields)
        return None if entry is None else (self._conversations[key], entry)
