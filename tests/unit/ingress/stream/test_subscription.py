"""A stream hands entries, hints and ends to all of its clients."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.stream import EncodedEvent, Entry
from ingress.metrics import IngressMetrics
from ingress.stream.frames import ClientCursor, Phase, build_batch
from ingress.stream.hub import ConversationStream, Hub, Subscription
from ingress.stream.rows import Head, Position, SharedRead, Snapshot

START = EventCursor(1, 1)


async def load_nothing() -> Snapshot:
    return Snapshot(START, b"", queued=False)


async def load_no_head() -> Head:
    return Head(b"", queued=False)


def build_stream(clients: int) -> ConversationStream:
    stream = ConversationStream(
        ConversationId("conv_1"), Principal("t", "p", "u"), START, SharedRead(load_nothing), SharedRead(load_no_head)
    )
    for _ in range(clients):
        cursor = ClientCursor(START, max_bytes=1000)
        cursor.reach_end(START, found_any=False)
        stream.clients.add(Subscription(stream, stream.principal, cursor, None, START))
    return stream


async def test_an_entry_reaches_all_clients_as_the_same_bytes() -> None:
    stream = build_stream(3)
    batch = build_batch(Entry(START, (EncodedEvent(EventCursor(1, 2), "chat.delta", b"{}"),)))

    stream.offer(batch)

    assert stream.cursor == EventCursor(1, 2)
    assert stream.version == 1
    assert all(client.wakeup.is_set() and client.cursor.take() is batch.joined for client in stream.clients)


async def test_a_hint_reaches_all_live_clients() -> None:
    stream = build_stream(2)

    stream.offer_hint(b"hint", read_at=stream.reads)

    assert [client.cursor.take() for client in stream.clients] == [b"hint", b"hint"]


async def test_a_client_newer_than_a_hint_reads_the_row_again() -> None:
    stream = build_stream(2)
    ahead, other = stream.clients
    read_at = stream.reads
    stream.note_read(ahead)

    stream.offer_hint(b"hint", read_at=read_at)

    assert (ahead.cursor.take(), other.cursor.take()) == (b"", b"hint")
    assert (ahead.cursor.stale_hints, ahead.wakeup.is_set()) == (True, True)


async def test_a_hint_that_could_not_be_read_in_time_is_left_to_the_clients() -> None:
    stream = build_stream(2)

    stream.defer_hint()

    assert all(client.cursor.stale_hints and client.wakeup.is_set() for client in stream.clients)


async def test_after_an_outage_all_clients_are_lost() -> None:
    stream = build_stream(2)

    stream.lose_all()

    assert all(client.cursor.phase is Phase.LOST and client.cursor.loss == "outage" for client in stream.clients)


async def test_the_end_wakes_all_clients() -> None:
    stream = build_stream(2)

    stream.end_all()

    assert all(client.ended and client.wakeup.is_set() for client in stream.clients)


class Beginning:
    """A conversation whose worker commits and publishes its first events while a client is connecting."""

    def __init__(self) -> None:
        self.last: EventCursor | None = None

    async def check_owner(self, principal: Principal, conversation_id: ConversationId) -> None:
        pass

    async def load_position(self, principal: Principal, conversation_id: ConversationId) -> Position:
        self.last = EventCursor(1, 3)
        return Position(self.last, is_running=True)

    load_head = staticmethod(load_no_head)

    async def load_last(self, conversation_id: ConversationId) -> EventCursor | None:
        return self.last


async def test_a_stream_that_begins_while_a_client_connects_has_no_gap() -> None:
    beginning: Any = Beginning()
    hub = Hub(reader=beginning, hints=beginning, rows=beginning, metrics=IngressMetrics(), queue_bytes=1000)

    client = await hub.open(Principal("t", "p", "u"), ConversationId("conv_1"), ORIGIN, None)

    assert client.cursor.phase is Phase.BEHIND


class Committed(Beginning):
    """A conversation whose rows are ahead of Redis, which has its stream from the read `begins_at` on."""

    def __init__(self, *, is_running: bool, begins_at: int | None = None) -> None:
        super().__init__()
        self.is_running = is_running
        self.begins_at = begins_at
        self.reads = 0

    async def load_position(self, principal: Principal, conversation_id: ConversationId) -> Position:
        return Position(EventCursor(1, 3), is_running=self.is_running)

    async def load_last(self, conversation_id: ConversationId) -> EventCursor | None:
        self.reads += 1
        return EventCursor(1, 3) if self.begins_at is not None and self.reads >= self.begins_at else None


async def open_at_origin(committed: Any) -> ClientCursor:
    hub = Hub(reader=committed, hints=committed, rows=committed, metrics=IngressMetrics(), queue_bytes=1000)
    return (await hub.open(Principal("t", "p", "u"), ConversationId("conv_1"), ORIGIN, None)).cursor


async def test_the_first_entry_of_a_turn_may_come_after_its_first_commit() -> None:
    cursor = await open_at_origin(Committed(is_running=True, begins_at=4))

    assert cursor.phase is Phase.BEHIND


@pytest.mark.parametrize(("is_running", "reads"), [(True, range(3, 99)), (False, range(2, 3))])
async def test_a_stream_that_does_not_begin_is_lost_at_once_unless_a_turn_runs(is_running: bool, reads: range) -> None:
    committed = Committed(is_running=is_running)

    cursor = await open_at_origin(committed)

    assert (cursor.phase, cursor.loss) == (Phase.LOST, "expired_cursor")
    assert committed.reads in reads


class Outage(Beginning):
    """A Redis that was away for a moment, and then has these ids."""

    def __init__(self, last: dict[ConversationId, EventCursor]) -> None:
        super().__init__()
        self.reads = 0
        self.followed: asyncio.Queue[dict[ConversationId, EventCursor]] = asyncio.Queue()
        self._all = last

    async def load_last_of(self, conversation_ids: Sequence[ConversationId]) -> dict[ConversationId, EventCursor]:
        self.reads += 1
        if self.reads == 1:
            raise Unavailable("still away")
        return {each: self._all[each] for each in conversation_ids if each in self._all}

    async def follow(self, hub: Hub) -> AsyncGenerator[Any]:
        self.followed.put_nowait(hub.cursors())
        if self.followed.qsize() == 1 and not self.reads:
            raise Unavailable("away")
        await asyncio.Event().wait()
        yield

    async def listen(self, _: Callable[[], None]) -> AsyncGenerator[Any]:
        await asyncio.Event().wait()
        yield


async def test_after_an_outage_all_streams_are_read_in_one_step_and_resync() -> None:
    conversations = [ConversationId(f"conv_{number}") for number in range(500)]
    outage: Any = Outage({each: EventCursor(7, 7) for each in conversations[1:]})
    hub = Hub(reader=outage, hints=outage, rows=outage, metrics=IngressMetrics(), queue_bytes=1000)
    who = Principal("t", "p", "u")
    clients = [await hub.open(who, each, ORIGIN, None) for each in conversations]
    before = hub.cursors()
    running = asyncio.create_task(hub.run())
    try:
        async with asyncio.timeout(30):
            assert await outage.followed.get() == before
            after = await outage.followed.get()
    finally:
        running.cancel()
        await asyncio.wait({running})

    assert outage.reads == 2
    assert after == {**dict.fromkeys(conversations, EventCursor(7, 7)), conversations[0]: before[conversations[0]]}
    assert {client.cursor.phase for client in clients} == {Phase.LOST}
