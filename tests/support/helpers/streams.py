"""A client of event streams, and a worker that publishes to Redis."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx2

from everturn.core.clock import iso
from everturn.core.ids import ConversationId, TurnId
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.model import AnyEvent, ChatDelta, Envelope, encode_envelope, parse_envelope
from everturn.events.stream import EncodedEvent, Entry
from everturn.postgres.pool import Database
from everturn.redis_drivers import RedisDrivers
from everturn.turns.model import Claim, Commit
from everturn.turns.postgres_leases import PostgresLeases
from everturn.turns.postgres_timelines import PostgresTimelines


@dataclass(frozen=True)
class Frame:
    """One SSE frame; a comment has the event `:`."""

    event: str
    id: str | None
    data: Envelope | None
    retry: str | None = None


class EventStream:
    """An open stream, read frame by frame."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> Frame:
        """The next frame, comments included. Raises StopAsyncIteration at the end."""
        fields: dict[str, str] = {}
        async for line in self._lines:
            if not line and fields:
                data = parse_envelope(fields["data"]) if "data" in fields else None
                return Frame(fields.get("event", ":"), fields.get("id"), data, fields.get("retry"))
            name, _, value = line.partition(":")
            if line:
                fields[name or "comment"] = value.removeprefix(" ")
        raise StopAsyncIteration

    async def until(self, event: str, *, skip: tuple[str, ...] = (":",)) -> Frame:
        """The next frame but for comments, which must be that event, or one of `skip` before it."""
        while True:
            frame = await self.next()
            if frame.event == event:
                return frame
            assert frame.event in skip, f"{frame} instead of {event}"

    async def rest(self) -> list[Frame]:
        """All frames to the end."""
        frames: list[Frame] = []
        while True:
            try:
                frames.append(await self.next())
            except StopAsyncIteration:
                return frames


OpenStream = Callable[..., AbstractAsyncContextManager[EventStream]]


@asynccontextmanager
async def open_stream(
    http: httpx2.AsyncClient, conversation: str, *, last_event_id: str | None = None, **params: str
) -> AsyncIterator[EventStream]:
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
    url = f"/conversations/default/default/{conversation}/events"
    async with http.stream("GET", url, params=params, headers=headers) as response:
        if response.status_code != 200:
            await response.aread()
        yield EventStream(response)


class Publisher:
    """A worker's end: claims a conversation, commits, publishes."""

    def __init__(self, redis_drivers: RedisDrivers, database: Database) -> None:
        self._redis = redis_drivers
        self._leases = PostgresLeases(database, owner="test-worker")
        self._timelines = PostgresTimelines(database)
        self._last: dict[str, EventCursor] = {}
        self._claims: dict[str, Claim] = {}

    async def claim(self, conversation: str) -> Claim:
        """Take the lease; the first event will have its fence."""
        claim = await self._leases.try_claim(ConversationId(conversation))
        assert claim
        self._claims[conversation] = claim
        self._last.setdefault(conversation, claim.cursor)
        return claim

    def _next(self, conversation: str) -> EventCursor:
        fence, last = self._claims[conversation].lease.fence, self._last[conversation]
        return EventCursor(fence, last.n + 1 if last.fence == fence else 1)

    async def commit(self, conversation: str) -> str:
        """Store that the rows include all events so far."""
        claim = self._claims[conversation]
        last = self._last[conversation]
        assert claim.turn_id
        await self._timelines.commit(claim.lease, Commit(turn_id=TurnId(claim.turn_id), blocks=(), cursor=last))
        return str(last)

    def skip(self, conversation: str, count: int = 1) -> None:
        """Give out ids that are never published."""
        for _ in range(count):
            self._last[conversation] = self._next(conversation)

    def rewind_ids(self, conversation: str) -> None:
        """Begin again with the ids of the claim: those given out since are of events that are yet to be published."""
        self._last[conversation] = self._claims[conversation].cursor

    async def publish(
        self, conversation: str, *data: AnyEvent, anywhere: bool = False, turn_id: str | None = None
    ) -> list[str]:
        """One entry with these events, behind the one before or wherever the stream ends; returns their ids."""
        prev = self._last[conversation]
        events: list[EncodedEvent] = []
        for each in data:
            cursor = self._last[conversation] = self._next(conversation)
            envelope = Envelope(
                id=str(cursor),
                type=each.type,
                ts=iso(datetime.now(UTC)),
                conversation_id=conversation,
                turn_id=turn_id,
                round=1,
                data=each,
            )
            events.append(EncodedEvent(cursor, each.type, encode_envelope(envelope)))
        entry = Entry(prev, tuple(events))
        after = None if anywhere or prev == ORIGIN else prev
        await self._redis.event_writer.publish(ConversationId(conversation), entry, after=after)
        return [str(event.id) for event in events]

    async def say(self, conversation: str, *texts: str, anywhere: bool = False) -> list[str]:
        """One entry with a delta for each text."""
        deltas = [
            ChatDelta(channel="answer", instance=0, index=n, text=text, marker="answer") for n, text in enumerate(texts)
        ]
        return await self.publish(conversation, *deltas, anywhere=anywhere)
