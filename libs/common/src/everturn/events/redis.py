"""The event stream of a conversation in Redis: how an entry is written and read.

An entry has the id before it, a head with the size of each event, and the concatenated encoded events.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from everturn.core.cancellation import end_tasks
from everturn.core.errors import StaleFence, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.core.open_values import report_unknown
from everturn.events.cursor import EventCursor, try_parse_cursor
from everturn.events.redis_budget import ACCOUNT_KEEP_S, MAKE_ROOM, StreamBudget, hash_owner
from everturn.events.stream import ERASED_FENCE, EncodedEvent, Entry, EventsLost, FollowSet
from everturn.redis.calls import GRACE_S, PUBLISH_LIMIT_S, limited

Fields = Mapping[bytes, bytes]

STREAMS_AT_ONCE = 200
"""Streams per round trip: their answers take Redis about a millisecond."""

BLOCK_MS = 5_000
ENTRIES_PER_STREAM = 100
WAKE_KEEP_S = 60

MAX_ENTRIES = 2_000
KEEP_S = 3_600

# The last id is read with XINFO, which reports it even when every entry has been trimmed away. An entry whose id equals
# it is already stored: the answer to its first attempt was lost.
_PUBLISH = (
    MAKE_ROOM
    + """
local id, after = ARGV[1], ARGV[2]
local last = '0-0'
local info = redis.pcall('XINFO', 'STREAM', KEYS[1])
if not info.err then
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = info[i + 1] end
  end
end
if tonumber(string.match(last, '^%d+')) > tonumber(string.match(id, '^%d+')) then return 'STALE' end
if last == id then return 'OK' end
if after ~= '' and last ~= after then return 'LOST' end
local tenant, user, conversation, size = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
if user ~= '' then
  make_room(tenant, user, conversation, size, tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]))
end
local added = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], id, unpack(ARGV, 12))
if type(added) == 'table' and added.err then
  if string.find(added.err, 'equal or smaller') then return 'LOST' end
  return added
end
redis.call('EXPIRE', KEYS[1], ARGV[4])
if user ~= '' then book(tenant, user, conversation, size, ACCOUNT_KEEP_S) end
return 'OK'
""".replace("ACCOUNT_KEEP_S", str(ACCOUNT_KEEP_S))
)


def stream_key(conversation_id: ConversationId) -> str:
    """The braces are part of the name. Redis Cluster is not supported: docs/decisions/0006-events-and-cursors.md."""
    return f"events:{{{conversation_id}}}"


def build_fields(entry: Entry) -> tuple[bytes, ...]:
    """Names and values alternating: prev, head (`<n> <type> <bytes>` for each event), body."""
    head = "\n".join(f"{event.id.n} {event.type} {len(event.payload)}" for event in entry.events)
    body = b"".join(event.payload for event in entry.events)
    return (b"prev", str(entry.prev).encode(), b"head", head.encode(), b"body", body)


def read_entry(entry_id: EventCursor, fields: Fields) -> Entry:
    """All events of an entry have the fence of its id."""
    body = fields[b"body"]
    events: list[EncodedEvent] = []
    start = 0
    for line in fields[b"head"].decode().split("\n"):
        n, event_type, size = line.split(" ")
        end = start + int(size)
        events.append(EncodedEvent(EventCursor(entry_id.fence, int(n)), event_type, body[start:end]))
        start = end
    return Entry(read_id(fields[b"prev"]), tuple(events))


def try_read_entry(entry_id: EventCursor, fields: Fields) -> Entry | None:
    """None for an entry in a format that only a newer version knows: readers see a gap, and load a snapshot after
    it."""
    try:
        return read_entry(entry_id, fields)
    except (KeyError, ValueError) as error:
        report_unknown("stream entry", type(error).__name__)
        return None


def read_id(raw: bytes) -> EventCursor:
    cursor = try_parse_cursor(raw.decode())
    if cursor is None:
        raise ValueError(f"{raw!r} is not an event id")
    return cursor


async def load_last_id(client: Any, conversation_id: ConversationId) -> EventCursor | None:
    """None when there is no such stream; a stream with all entries trimmed away still has its last id."""
    async with limited(PUBLISH_LIMIT_S):
        try:
            return _read_last_id(await client.xinfo_stream(stream_key(conversation_id)))
        except ResponseError as error:
            return _read_last_id(error)


def _read_last_id(answer: Mapping[str, Any] | Exception) -> EventCursor | None:
    match answer:
        case ResponseError() if "no such key" in str(answer):
            return None
        case Exception():
            raise answer
        case _:
            return read_id(answer["last-generated-id"])


class RedisEventReader:
    """`name` is unique among all readers that share the server: it names the stream that wakes this reader's wait."""

    def __init__(self, client: Redis, *, name: str) -> None:
        self._client: Any = client
        self._wake_key = f"wake:{name}"

    async def load_last(self, conversation_id: ConversationId) -> EventCursor | None:
        return await load_last_id(self._client, conversation_id)

    async def load_last_of(self, conversation_ids: Sequence[ConversationId]) -> Mapping[ConversationId, EventCursor]:
        found: dict[ConversationId, EventCursor] = {}
        for first in range(0, len(conversation_ids), STREAMS_AT_ONCE):
            batch = conversation_ids[first : first + STREAMS_AT_ONCE]
            async with limited(PUBLISH_LIMIT_S), self._client.pipeline(transaction=False) as pipeline:
                for conversation_id in batch:
                    pipeline.xinfo_stream(stream_key(conversation_id))
                answers = await pipeline.execute(raise_on_error=False)
                lasts = map(_read_last_id, answers)
                found |= {each: last for each, last in zip(batch, lasts, strict=True) if last is not None}
        return found

    async def load_after(
        self, conversation_id: ConversationId, after: EventCursor, *, max_entries: int
    ) -> tuple[Entry, ...]:
        async with limited(PUBLISH_LIMIT_S):
            rows = await self._client.xrange(stream_key(conversation_id), min=f"({after}", count=max_entries)
        read = (try_read_entry(read_id(raw_id), fields) for raw_id, fields in rows)
        return tuple(entry for entry in read if entry is not None)

    async def follow(self, conversations: FollowSet) -> AsyncGenerator[tuple[ConversationId, Entry]]:
        """One reading connection for all of them; adding a conversation ends the wait at once."""
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
            raise Unavailable("Could not wake the event reader.") from waker.exception()
        finally:
            await end_tasks(waker)

    async def _read(self, streams: dict[str, str]) -> list[tuple[str, list[tuple[bytes, Fields]]]]:
        async with limited(BLOCK_MS / 1_000 + GRACE_S):
            reply = await self._client.xread(streams, count=ENTRIES_PER_STREAM, block=BLOCK_MS)
        return [(key.decode(), rows) for key, rows in reply or ()]

    async def _run_waker(self, conversations: FollowSet) -> None:
        """An entry in a stream, not a signal to the connection: it also wakes a wait that is just beginning."""
        while True:
            await conversations.changed()
            async with limited(PUBLISH_LIMIT_S), self._client.pipeline(transaction=False) as pipeline:
                pipeline.xadd(self._wake_key, {"": ""}, maxlen=1, approximate=False)
                pipeline.expire(self._wake_key, WAKE_KEEP_S)
                await pipeline.execute()


class _Cursors:
    """The position of each stream. The set's position counts, unless it has not changed; then that of the last entry
    read."""

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
        """None for an entry that can't be read; reading continues after it."""
        self._yielded[key] = entry_id
        entry = try_read_entry(entry_id, fields)
        return None if entry is None else (self._conversations[key], entry)


class RedisEventWriter:
    """Publishes entries; a stream keeps about 2,000 of them, within the budget, until an hour after the last."""

    def __init__(self, client: Redis, *, budget: StreamBudget | None = None) -> None:
        self._client: Any = client
        self._budget = budget or StreamBudget()
        self._publish = cast(Any, client.register_script(_PUBLISH))

    async def load_last(self, conversation_id: ConversationId) -> EventCursor | None:
        return await load_last_id(self._client, conversation_id)

    async def load_newest(
        self, conversation_id: ConversationId, *, max_entries: int, before: EventCursor | None = None
    ) -> tuple[Entry, ...]:
        newest = "+" if before is None else f"({before}"
        async with limited(PUBLISH_LIMIT_S):
            rows = await self._client.xrevrange(stream_key(conversation_id), max=newest, count=max_entries)
        return tuple(
            entry for raw_id, fields in reversed(rows) if (entry := try_read_entry(read_id(raw_id), fields)) is not None
        )

    async def publish(
        self,
        conversation_id: ConversationId,
        entry: Entry,
        *,
        after: EventCursor | None,
        owner: Principal | None = None,
    ) -> None:
        head = (str(entry.events[-1].id), "" if after is None else str(after), MAX_ENTRIES, KEEP_S)
        fields, budget = build_fields(entry), self._budget
        tenant, user = ("", "") if owner is None else hash_owner(owner)
        account = (tenant, user, conversation_id, sum(map(len, fields)))
        bounds = (budget.stream_bytes, budget.user_bytes, budget.tenant_bytes)
        async with limited(PUBLISH_LIMIT_S):
            reply = await self._publish(keys=[stream_key(conversation_id)], args=[*head, *account, *bounds, *fields])
        match reply:
            case b"OK":
                return
            case b"STALE":
                raise StaleFence(conversation_id)
            case _:
                raise EventsLost(conversation_id)

    async def erase(self, conversation_id: ConversationId) -> None:
        """Leaves an empty stream with the highest of all ids, which rejects a worker that does not know yet."""
        key = stream_key(conversation_id)
        async with limited(PUBLISH_LIMIT_S), self._client.pipeline(transaction=True) as pipeline:
            pipeline.delete(key)
            pipeline.xadd(key, {"": ""}, id=f"{ERASED_FENCE}-0")
            pipeline.xtrim(key, maxlen=0, approximate=False)
            pipeline.expire(key, KEEP_S)
            await pipeline.execute()
