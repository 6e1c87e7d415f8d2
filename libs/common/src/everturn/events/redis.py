"""Events in Redis: the stream of a conversation, hints, and notifications of new signals.

An entry of a stream has the id before it, a head with the size of each event, and the concatenated encoded events.
Hints and inbox notifications go over pub/sub and reach only current listeners. They are sent together with the doorbell
of a new turn.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import chain
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from everturn.core.cancellation import discard_errors, end_tasks
from everturn.core.errors import StaleFence, Unavailable
from everturn.core.identity import Lane, Principal
from everturn.core.ids import ConversationId
from everturn.core.open_values import report_unknown
from everturn.events.cursor import EventCursor, try_parse_cursor
from everturn.events.redis_budget import ACCOUNT_KEEP_S, MAKE_ROOM, StreamBudget, hash_owner
from everturn.events.stream import ERASED_FENCE, EncodedEvent, Entry, EventsLost, FollowSet, Hint
from everturn.queue.redis import doorbell_command
from everturn.redis.calls import (
    CALL_LIMIT_S,
    PUBLISH_LIMIT_S,
    RING_LIMIT_S,
    limited,
    next_message,
    try_next_message,
)

Fields = Mapping[bytes, bytes]

STREAMS_AT_ONCE = 200
"""Streams per round trip: their answers take Redis about a millisecond."""

ENTRIES_PER_STREAM = 100
TIDY_EVERY_S = 5.0
"""How long a conversation that is no longer followed can stay subscribed."""
_PREFIX = "events:"
_ABOUT_A_CHANNEL = ("subscribe", "unsubscribe", "message")
_ALIVE = f"{_PREFIX}alive"
"""A channel without messages, so that there is one before the first conversation is followed."""
HINTS = "hints"
INBOX = "inbox:"

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
redis.call('PUBLISH', KEYS[1], id .. ' ' .. ARGV[13] .. ' ' .. #ARGV[15] .. '\\n' .. ARGV[15] .. ARGV[17])
if user ~= '' then book(tenant, user, conversation, size, ACCOUNT_KEEP_S) end
return 'OK'
""".replace("ACCOUNT_KEEP_S", str(ACCOUNT_KEEP_S))
)


def stream_key(conversation_id: ConversationId) -> str:
    """The braces are part of the name. Redis Cluster is not supported: docs/decisions/0006-events-and-cursors.md."""
    return f"{_PREFIX}{{{conversation_id}}}"


def read_key(key: str) -> ConversationId:
    """The conversation of a stream and its channel."""
    return ConversationId(key.removeprefix(_PREFIX).strip("{}"))


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


def _try_read_message(data: bytes) -> Entry | None:
    """The entry that was published: its id, the id before it, and the size of the head in a line, then head and
    body."""
    try:
        line, rest = data.split(b"\n", 1)
        entry_id, prev, size = line.split(b" ")
        fields = {b"prev": prev, b"head": rest[: int(size)], b"body": rest[int(size) :]}
        return try_read_entry(read_id(entry_id), fields)
    except ValueError as error:
        report_unknown("stream message", type(error).__name__)
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
    """Reads streams, and listens to their channels: an entry is published there when it is in its stream."""

    def __init__(self, client: Redis) -> None:
        self._client: Any = client

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
        return tuple(entry for _, entry in _read_rows(rows) if entry is not None)

    async def follow(self, conversations: FollowSet) -> AsyncGenerator[tuple[ConversationId, Entry]]:
        """One connection for all of them, on which an entry costs the same however many there are.

        Once a channel is subscribed, its stream is read from the cursor on. What is published from then on arrives
        by itself; what both bring is yielded once.
        """
        pubsub = self._client.pubsub()
        try:
            async with limited(PUBLISH_LIMIT_S):
                await pubsub.subscribe(_ALIVE)
            subscribing = asyncio.create_task(_run_subscriptions(pubsub, conversations))
            try:
                async with aclosing(self._read(pubsub, conversations, subscribing)) as entries:
                    async for taken in entries:
                        yield taken
            finally:
                await end_tasks(subscribing)
                discard_errors(subscribing)  # the reader found the same broken connection
        finally:
            await pubsub.aclose()

    async def _read(
        self, pubsub: Any, conversations: FollowSet, subscribing: asyncio.Task[None]
    ) -> AsyncGenerator[tuple[ConversationId, Entry]]:
        unread = _Unread(conversations)
        new: set[ConversationId] = set()
        while not subscribing.done():
            message = await (try_next_message(pubsub) if new else next_message(pubsub))
            kind = message["type"] if message else "none"
            key = message["channel"].decode() if message and kind in _ABOUT_A_CHANNEL else _ALIVE
            if kind == "subscribe" and key != _ALIVE:
                new.add(read_key(key))
                unread.restart(read_key(key))
                if len(new) < STREAMS_AT_ONCE:
                    continue
            elif kind == "unsubscribe":
                unread.restart(read_key(key))
            while new:
                for conversation_id, rows in (await self._load_unread(new, unread)).items():
                    for entry_id, entry in rows:
                        # Also moves on after an entry that can't be read, which clients find to be a gap.
                        if unread.take(conversation_id, entry_id) and entry is not None:
                            yield conversation_id, entry
                    if len(rows) < ENTRIES_PER_STREAM:
                        new.discard(conversation_id)
            entry = _try_read_message(message["data"]) if message and kind == "message" else None
            if entry is not None and unread.is_after_gap(read_key(key), entry):
                new.add(read_key(key))
            elif entry is not None and unread.take(read_key(key), entry.events[-1].id):
                yield read_key(key), entry
        raise Unavailable("Could not subscribe to the event streams.") from subscribing.exception()

    async def _load_unread(
        self, conversation_ids: Collection[ConversationId], unread: "_Unread"
    ) -> Mapping[ConversationId, Sequence[tuple[EventCursor, Entry | None]]]:
        """The next entries of each conversation: their ids, and the entries that can be read. Empty for a conversation
        that is no longer followed."""
        cursors = {each: cursor for each in conversation_ids if (cursor := unread.find_cursor(each)) is not None}
        async with limited(PUBLISH_LIMIT_S), self._client.pipeline(transaction=False) as pipeline:
            for conversation_id, cursor in cursors.items():
                pipeline.xrange(stream_key(conversation_id), min=f"({cursor}", count=ENTRIES_PER_STREAM)
            answers = await pipeline.execute()
        loaded = {each: _read_rows(rows) for each, rows in zip(cursors, answers, strict=True)}
        return {each: loaded.get(each, ()) for each in conversation_ids}


def _read_rows(rows: Sequence[tuple[bytes, Fields]]) -> tuple[tuple[EventCursor, Entry | None], ...]:
    ids = (read_id(raw_id) for raw_id, _ in rows)
    return tuple((entry_id, try_read_entry(entry_id, fields)) for entry_id, (_, fields) in zip(ids, rows, strict=True))


async def _run_subscriptions(pubsub: Any, conversations: FollowSet) -> None:
    """Subscribe to each conversation that is added, also if it is added again, and unsubscribe from those that are no
    longer followed."""
    subscribed: set[ConversationId] = set()
    added: Collection[ConversationId] = conversations.cursors().keys()
    while True:
        left = subscribed - conversations.cursors().keys()
        for change, names in ((pubsub.unsubscribe, left), (pubsub.subscribe, added)):
            keys = [stream_key(each) for each in names]
            for first in range(0, len(keys), STREAMS_AT_ONCE):
                async with limited(PUBLISH_LIMIT_S):
                    await change(*keys[first : first + STREAMS_AT_ONCE])
        subscribed = (subscribed - left) | set(added)
        added = ()
        with suppress(TimeoutError):
            async with asyncio.timeout(TIDY_EVERY_S):
                added = await conversations.changed()


class _Unread:
    """Which entries the reader has not had: those after its cursor in the set, and after the last one read."""

    def __init__(self, conversations: FollowSet) -> None:
        self._conversations = conversations
        self._read: dict[ConversationId, EventCursor] = {}

    def restart(self, conversation_id: ConversationId) -> None:
        """Only the cursor in the set counts, because the conversation was added, or left the set."""
        self._read.pop(conversation_id, None)

    def find_cursor(self, conversation_id: ConversationId) -> EventCursor | None:
        """The last id that was read; None if the conversation is not followed."""
        cursor = self._conversations.find_cursor(conversation_id)
        if cursor is None:
            self._read.pop(conversation_id, None)
            return None
        return max(cursor, self._read.get(conversation_id, cursor))

    def is_after_gap(self, conversation_id: ConversationId, entry: Entry) -> bool:
        """Whether entries before it were not read: they came while nobody followed, before the conversation was added
        again."""
        cursor = self.find_cursor(conversation_id)
        return cursor is not None and entry.prev > cursor

    def take(self, conversation_id: ConversationId, entry_id: EventCursor) -> bool:
        """Whether to yield the entry with this id; it counts as read from now on."""
        cursor = self.find_cursor(conversation_id)
        if cursor is None or entry_id <= cursor:
            return False
        self._read[conversation_id] = entry_id
        return True


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
        return tuple(entry for _, entry in reversed(_read_rows(rows)) if entry is not None)

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


# Runs every command, even if one fails. ARGV has three values for each: its name, its key or channel, and its value. A
# pipeline of the client library would return after this process's own listener has begun to read rows, which delays the
# response to a message by 0.2 ms.
_NOTIFY = """
local errors = {}
for i = 1, #ARGV, 3 do
  local reply = redis.pcall(ARGV[i], ARGV[i + 1], ARGV[i + 2])
  errors[#errors + 1] = type(reply) == 'table' and reply.err or ''
end
return errors
"""


class RedisNotifications:
    """Sends all notifications of one change in one call."""

    def __init__(self, client: Redis) -> None:
        self._notify = cast(Any, client.register_script(_NOTIFY))

    async def send(self, hint: Hint, *, ring_lane: Lane | None = None) -> Mapping[str, str]:
        conversation_id = hint.conversation_id
        commands: dict[str, tuple[str, str, str]] = {}
        if ring_lane is not None:
            commands["doorbell"] = doorbell_command(ring_lane, conversation_id)
        if hint.kind == "signal":
            commands["inbox notification"] = ("PUBLISH", f"{INBOX}{{{conversation_id}}}", "")
        commands["hint"] = ("PUBLISH", HINTS, f"{hint.kind} {conversation_id} {hint.signal_id}")
        try:
            async with limited(CALL_LIMIT_S if ring_lane is None else RING_LIMIT_S):
                errors: list[bytes] = await self._notify(args=[*chain.from_iterable(commands.values())])
        except Unavailable as error:
            return dict.fromkeys(commands, str(error))
        return {what: f"Redis: {error.decode()}" for what, error in zip(commands, errors, strict=True) if error}


class RedisHints:
    """All hints go over one channel."""

    def __init__(self, client: Redis) -> None:
        self._client: Any = client

    async def listen(self, listening: Callable[[], None]) -> AsyncGenerator[Hint]:
        async with aclosing(_listen(self._client, HINTS, listening)) as messages:
            async for _, text in messages:
                # A newer version can know more kinds of hints, with more fields.
                kind, conversation_id, signal_id, *_ = *text.split(" "), "", ""
                if kind in ("status", "signal"):
                    yield Hint(kind, ConversationId(conversation_id), signal_id)
                else:
                    report_unknown("hint", kind)


class RedisInboxBells:
    """One channel for each conversation; a listener receives all of them."""

    def __init__(self, client: Redis) -> None:
        self._client: Any = client

    async def listen(self) -> AsyncGenerator[ConversationId]:
        async with aclosing(_listen(self._client, f"{INBOX}*", lambda: None)) as messages:
            async for channel, _ in messages:
                yield ConversationId(channel.removeprefix(INBOX).strip("{}"))


async def _listen(client: Any, pattern: str, listening: Callable[[], None]) -> AsyncGenerator[tuple[str, str]]:
    """Channel and text of each message. A ping detects a server that disappeared silently."""
    pubsub = client.pubsub()
    try:
        async with limited(PUBLISH_LIMIT_S):
            await pubsub.psubscribe(pattern)
        while True:
            message = await next_message(pubsub)
            if message["type"] == "psubscribe":
                listening()
            elif message["type"] == "pmessage":
                yield message["channel"].decode(), message["data"].decode()
    finally:
        await pubsub.aclose()
