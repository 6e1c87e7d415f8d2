"""Clients that read while entries arrive at awkward moments; the streams are in memory, the hub is the real one."""

import asyncio
import gc
import re
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, SignalId
from everturn.events.cursor import EventCursor
from everturn.events.stream import EncodedEvent, Entry, Hint
from everturn_testing.core import FixedClock
from everturn_testing.events.events import MemoryEvents
from ingress.admission.slots import OpenSlots
from ingress.auth.revocation import Recheck
from ingress.metrics import IngressMetrics
from ingress.stream.feed import LARGE_SNAPSHOT_BYTES, LARGE_SNAPSHOTS_OF_PERSON, SLOT_POLL_S, Feed, StreamEdge
from ingress.stream.frames import HEARTBEAT, UNAUTHORIZED, Phase
from ingress.stream.hub import SNAPSHOT_READS, Hub, Subscription
from ingress.stream.rows import Head, Snapshot, StreamRows

CONVERSATION = ConversationId("conv_1")
ANN = Principal("t", "p", "ann")


def at(n: int) -> EventCursor:
    return EventCursor(1, n)


def entry(n: int) -> Entry:
    return Entry(at(n - 1), (EncodedEvent(at(n), "chat.delta", b"{}"),))


class Rows(StreamRows):
    """A conversation whose rows include the events up to `cursor`."""

    def __init__(self, cursor: EventCursor) -> None:
        nothing = cast(Any, None)
        super().__init__(conversations=nothing, turns=nothing, inbox=nothing, queue=nothing, clock=FixedClock())
        self._cursor = cursor

    async def check_owner(self, principal: Principal, conversation_id: ConversationId) -> None:
        """It belongs to the caller."""

    async def load_snapshot(self, principal: Principal, conversation_id: ConversationId) -> Snapshot:
        return Snapshot(self._cursor, f"id: {self._cursor}\nevent: stream_snapshot\n\n".encode(), queued=False)

    async def load_head(self, principal: Principal, conversation_id: ConversationId) -> Head:
        return Head(b"", queued=False)


class OvertakenEvents(MemoryEvents):
    """`late` is published while a client's read is on its way back; the hub has it before the client has its page."""

    def __init__(self, late: Entry) -> None:
        super().__init__()
        self.late: Entry | None = late
        self.hub: Hub | None = None

    async def load_after(
        self, conversation_id: ConversationId, after: EventCursor, *, max_entries: int
    ) -> tuple[Entry, ...]:
        found = await super().load_after(conversation_id, after, max_entries=max_entries)
        late, self.late = self.late, None
        if late is not None and self.hub is not None:
            await self.publish(conversation_id, late, after=late.prev)
            while self.hub.cursors()[conversation_id] < late.events[-1].id:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)
        return found


class NoHints:
    async def listen(self, listening: Callable[[], None]) -> Any:
        await asyncio.Event().wait()
        yield


async def read_ids(hub: Hub, after: EventCursor | None, count: int) -> list[str]:
    """The ids of the first frames that have one."""
    client = await hub.open(ANN, CONVERSATION, after, None)
    ids: list[str] = []
    async with asyncio.timeout(10), aclosing(Feed(hub, heartbeat_s=60, unix_now=lambda: 0.0).chunks(client)) as chunks:
        async for chunk in chunks:
            ids += re.findall(r"^id: (.*)$", chunk.decode(), re.MULTILINE)
            if len(ids) >= count:
                break
    hub.close(client)
    return ids


async def follow(after: EventCursor | None, count: int) -> list[str]:
    """What a client receives from a stream with three stored entries and a fourth that arrives during its read."""
    events = OvertakenEvents(late=entry(4))
    for n in range(1, 4):
        await events.publish(CONVERSATION, entry(n), after=None if n == 1 else at(n - 1))
    hub = Hub(reader=events, hints=cast(Any, NoHints()), rows=Rows(at(3)), metrics=IngressMetrics(), queue_bytes=10_000)
    events.hub = hub
    running = asyncio.create_task(hub.run())
    try:
        return await read_ids(hub, after, count)
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_an_entry_that_overtakes_the_read_behind_a_snapshot_is_not_missed() -> None:
    assert await follow(None, 2) == ["1-3", "1-4"]


async def test_an_entry_during_the_read_of_a_current_client_needs_no_snapshot() -> None:
    assert await follow(at(3), 1) == ["1-4"]


async def test_an_entry_that_overtakes_a_page_comes_after_it() -> None:
    assert await follow(at(1), 3) == ["1-2", "1-3", "1-4"]


class LargeRows(Rows):
    """Its snapshot alone is more than may wait for a client."""

    async def load_snapshot(self, principal: Principal, conversation_id: ConversationId) -> Snapshot:
        small = await super().load_snapshot(principal, conversation_id)
        return Snapshot(small.cursor, small.frame.replace(b"\n\n", b"\ndata: " + b"x" * 20_000 + b"\n\n"), queued=False)

    async def load_head(self, principal: Principal, conversation_id: ConversationId) -> Head:
        return Head(b"event: conv_status\n\n", queued=False)


async def test_a_snapshot_above_the_bound_is_not_followed_by_another_one() -> None:
    events = MemoryEvents()
    await events.publish(CONVERSATION, entry(1), after=None)
    hub = Hub(
        reader=events, hints=cast(Any, NoHints()), rows=LargeRows(at(1)), metrics=IngressMetrics(), queue_bytes=10_000
    )
    client = await hub.open(ANN, CONVERSATION, None, None)
    client.cursor.stale_hints = True

    received = b""
    async with asyncio.timeout(10), aclosing(Feed(hub, heartbeat_s=60, unix_now=lambda: 0.0).chunks(client)) as chunks:
        async for chunk in chunks:
            received += chunk
            if b"conv_status" in received or received.count(b"stream_snapshot") > 1:
                break
    hub.close(client)

    assert received.count(b"event: stream_snapshot") == 1
    assert received.endswith(b"event: conv_status\n\n")


class HugeRows(Rows):
    def __init__(self, cursor: EventCursor) -> None:
        super().__init__(cursor)
        self.reads = 0
        self.fails = False

    async def load_snapshot(self, principal: Principal, conversation_id: ConversationId) -> Snapshot:
        self.reads += 1
        if self.fails:
            raise Unavailable("Postgres")
        frame = b"event: stream_snapshot\ndata: " + b"x" * LARGE_SNAPSHOT_BYTES + b"\n\n"
        return Snapshot(at(1), frame, queued=False)


async def test_concurrent_large_snapshots_of_a_user_are_bounded() -> None:
    events = MemoryEvents()
    await events.publish(CONVERSATION, entry(1), after=None)
    rows = HugeRows(at(1))
    hub = Hub(reader=events, hints=cast(Any, NoHints()), rows=rows, metrics=IngressMetrics(), queue_bytes=10_000)
    feed = Feed(hub, heartbeat_s=0.01, unix_now=lambda: 0.0)

    async def begin(
        who: Principal = ANN, conversation_id: ConversationId = CONVERSATION
    ) -> tuple[Subscription, AsyncGenerator[bytes], bytes]:
        client = await hub.open(who, conversation_id, None, None)
        chunks = feed.chunks(client)
        await anext(chunks)
        return client, chunks, await anext(chunks)

    async with asyncio.timeout(10):
        # None of them asks for more: to the feed, its connection still holds the snapshot.
        stalled = [await begin() for _ in range(LARGE_SNAPSHOTS_OF_PERSON)]
        _, waiting, first = await begin()
        reads = rows.reads
        again = await anext(waiting)
        reads_while_full = rows.reads - reads
        _, _, of_another = await begin(replace(ANN, user_id="bob"), ConversationId("conv_2"))
        gone = stalled[0][0]
        hub.close(gone)
        hub.close(gone)
        after_a_close = await anext(waiting)
        _, next_waiting, second = await begin()
        coming = await anext(waiting)
        after_a_read = await anext(next_waiting)

    assert all(chunk.startswith(b"event: stream_snapshot") for _, _, chunk in stalled)
    assert first == again == second == HEARTBEAT == coming
    assert reads_while_full == 0
    assert all(chunk.startswith(b"event: stream_snapshot") for chunk in (of_another, after_a_close, after_a_read))


async def test_a_client_that_waits_for_a_slot_gets_no_more_heartbeats_than_others() -> None:
    events = MemoryEvents()
    await events.publish(CONVERSATION, entry(1), after=None)
    rows = HugeRows(at(1))
    hub = Hub(reader=events, hints=cast(Any, NoHints()), rows=rows, metrics=IngressMetrics(), queue_bytes=10_000)
    feed = Feed(hub, heartbeat_s=60, unix_now=lambda: 0.0)
    clients = [await hub.open(ANN, CONVERSATION, None, None) for _ in range(LARGE_SNAPSHOTS_OF_PERSON + 1)]
    opened = [feed.chunks(client) for client in clients]

    async with asyncio.timeout(10):
        for chunks in opened:
            await anext(chunks)  # ready
            await anext(chunks)
        following = asyncio.ensure_future(anext(opened[-1]))
        await asyncio.wait([following], timeout=3 * SLOT_POLL_S)
        is_waiting = not following.done()
        hub.close(clients[0])
        snapshot = await following

    assert is_waiting
    assert snapshot.startswith(b"event: stream_snapshot")


@pytest.mark.parametrize("why", ["the server drains", "the credential expires"])
async def test_a_client_that_ends_while_it_waits_for_a_slot_gets_no_heartbeat(why: str) -> None:
    events, rows, now = MemoryEvents(), HugeRows(at(1)), 0.0
    await events.publish(CONVERSATION, entry(1), after=None)
    hub = Hub(reader=events, hints=NoHints(), rows=rows, metrics=IngressMetrics(), queue_bytes=10_000)
    feed = Feed(hub, heartbeat_s=60, unix_now=lambda: now)
    clients = [await hub.open(ANN, CONVERSATION, None, None) for _ in range(LARGE_SNAPSHOTS_OF_PERSON)]
    opened = [feed.chunks(client) for client in clients]
    last = await hub.open(ANN, CONVERSATION, None, 1.0)

    async with asyncio.timeout(10), aclosing(feed.chunks(last)) as chunks:
        for each in opened:
            await anext(each)  # ready
            await anext(each)
        ready, heartbeat = await anext(chunks), await anext(chunks)
        coming = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0)
        if why == "the server drains":
            hub.drain()
        else:
            now = 1.0
        ending = await coming

    assert b"event: ready" in ready and heartbeat == HEARTBEAT
    assert ending == UNAUTHORIZED if why == "the credential expires" else b"event: server_shutdown" in ending


async def test_a_slot_comes_back_when_the_large_snapshot_can_not_be_read() -> None:
    events, rows = MemoryEvents(), HugeRows(at(1))
    await events.publish(CONVERSATION, entry(1), after=None)
    hub = Hub(reader=events, hints=cast(Any, NoHints()), rows=rows, metrics=IngressMetrics(), queue_bytes=10_000)
    feed = Feed(hub, heartbeat_s=0.01, unix_now=lambda: 0.0)
    clients = [await hub.open(ANN, CONVERSATION, None, None) for _ in range(LARGE_SNAPSHOTS_OF_PERSON + 2)]
    opened = [feed.chunks(client) for client in clients]

    async with asyncio.timeout(10):
        for chunks in opened:
            await anext(chunks)  # ready
        *_, without, next_one = [await anext(chunks) for chunks in opened]
        hub.close(clients[0])
        rows.fails = True
        failed = await anext(opened[-2])
        rows.fails = False
        after = await anext(opened[-1])

    assert without == next_one == failed == HEARTBEAT
    assert after.startswith(b"event: stream_snapshot")


class SlowRows(Rows):
    """Counts how many snapshots are read at once."""

    def __init__(self, cursor: EventCursor) -> None:
        super().__init__(cursor)
        self.begun = 0
        self.goes_on = asyncio.Event()

    async def load_snapshot(self, principal: Principal, conversation_id: ConversationId) -> Snapshot:
        self.begun += 1
        await self.goes_on.wait()
        return await super().load_snapshot(principal, conversation_id)


async def test_concurrent_snapshot_reads_are_bounded_and_leavers_make_room() -> None:
    rows, count = SlowRows(at(1)), SNAPSHOT_READS + 2
    hub = Hub(
        reader=MemoryEvents(), hints=cast(Any, NoHints()), rows=rows, metrics=IngressMetrics(), queue_bytes=10_000
    )
    feed = Feed(hub, heartbeat_s=60, unix_now=lambda: 0.0)

    async def read_snapshot(conversation_id: ConversationId) -> bytes:
        chunks = feed.chunks(await hub.open(ANN, conversation_id, None, None))
        await anext(chunks)
        return await anext(chunks)

    async with asyncio.timeout(10):
        reading = [asyncio.create_task(read_snapshot(ConversationId(f"conv_{n}"))) for n in range(count)]
        await asyncio.wait(reading, timeout=0.05)
        at_once = rows.begun
        reading[0].cancel()
        await asyncio.wait(reading, timeout=0.05)
        after_one_left = rows.begun
        rows.goes_on.set()
        snapshots = await asyncio.gather(*reading[1:])

    assert (at_once, after_one_left) == (SNAPSHOT_READS, SNAPSHOT_READS + 1)
    assert all(b"event: stream_snapshot" in snapshot for snapshot in snapshots)


async def test_the_lag_of_a_live_event_is_measured_when_its_client_read_it() -> None:
    events, metrics = MemoryEvents(), IngressMetrics()
    await events.publish(CONVERSATION, entry(1), after=None)
    hub = Hub(reader=events, hints=cast(Any, NoHints()), rows=Rows(at(1)), metrics=metrics, queue_bytes=10_000)
    running = asyncio.create_task(hub.run())
    client = await hub.open(ANN, CONVERSATION, at(1), None)

    async with asyncio.timeout(10), aclosing(Feed(hub, heartbeat_s=60, unix_now=lambda: 12.0).chunks(client)) as chunks:
        await anext(chunks)
        coming = asyncio.create_task(anext(chunks))
        while client.cursor.phase is not Phase.LIVE:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        payload = b'{"ts":"1970-01-01T00:00:10Z"}'
        await events.publish(CONVERSATION, Entry(at(1), (EncodedEvent(at(2), "chat.delta", payload),)), after=at(1))
        await coming
        before = metrics.registry.get_sample_value("ingress_stream_lag_seconds_count")
        asking = asyncio.create_task(anext(chunks))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
    running.cancel()
    await asyncio.wait([running])

    assert before == 0
    assert metrics.registry.get_sample_value("ingress_stream_lag_seconds_count") == 1
    assert metrics.registry.get_sample_value("ingress_stream_lag_seconds_sum") == 2


class Writer:
    """A connection that can be written to while it is free."""

    def __init__(self) -> None:
        self.is_free = True
        self.written: list[bytes] = []

    def write(self, piece: bytes) -> None:
        self.written.append(piece)


@dataclass
class Waiting:
    events: MemoryEvents
    client: Subscription
    chunks: AsyncGenerator[bytes]
    coming: asyncio.Future[bytes]
    metrics: IngressMetrics

    async def publish(self, n: int, payload: bytes = b"{}") -> None:
        """Returns once the hub has offered the entry."""
        published = Entry(at(n - 1), (EncodedEvent(at(n), "chat.delta", payload),))
        await self.events.publish(CONVERSATION, published, after=at(n - 1))
        while self.client.stream.cursor < at(n):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)


@asynccontextmanager
async def wait_live(writer: Writer, *, heartbeat_s: float = 60) -> AsyncIterator[Waiting]:
    """A client at 1-1 that waits for 1-2, and what its task yields next."""
    events, metrics = MemoryEvents(), IngressMetrics()
    await events.publish(CONVERSATION, entry(1), after=None)
    hub = Hub(reader=events, hints=cast(Any, NoHints()), rows=Rows(at(1)), metrics=metrics, queue_bytes=10_000)
    running = asyncio.create_task(hub.run())
    client = await hub.open(ANN, CONVERSATION, at(1), None)
    feed = Feed(hub, heartbeat_s=heartbeat_s, unix_now=lambda: 12.0)
    async with asyncio.timeout(10), aclosing(feed.chunks(client, writer=writer)) as chunks:
        await anext(chunks)  # ready
        coming = asyncio.ensure_future(anext(chunks))
        while not client.is_waiting:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        yield Waiting(events, client, chunks, coming, metrics)
        coming.cancel()
        await asyncio.wait([coming])
    running.cancel()
    await asyncio.wait([running])


async def test_what_arrives_while_a_client_waits_is_written_without_its_task() -> None:
    writer = Writer()
    async with wait_live(writer) as waiting:
        await waiting.publish(2, b'{"ts":"1970-01-01T00:00:10Z"}')
        await waiting.publish(3, b'{"ts":"1970-01-01T00:00:11Z"}')
        is_waiting = waiting.client.is_waiting and not waiting.client.wakeup.is_set()

    assert re.findall(rb"^id: (.*)$", b"".join(writer.written), re.MULTILINE) == [b"1-2", b"1-3"]
    assert is_waiting
    assert waiting.metrics.registry.get_sample_value("ingress_stream_lag_seconds_count") == 2
    assert waiting.metrics.registry.get_sample_value("ingress_stream_lag_seconds_sum") == 3


async def test_a_closed_client_is_freed_at_once() -> None:
    hub = Hub(reader=MemoryEvents(), hints=NoHints(), rows=Rows(at(0)), metrics=IngressMetrics(), queue_bytes=10_000)
    client = await hub.open(ANN, CONVERSATION, None, None)
    async with aclosing(Feed(hub, heartbeat_s=60, unix_now=lambda: 0.0).chunks(client, writer=Writer())) as chunks:
        await anext(chunks)
    freed = weakref.ref(client.cursor)
    gc.collect()
    gc.disable()
    try:
        hub.close(client)
        del chunks, client
        is_freed = freed() is None
    finally:
        gc.enable()

    assert is_freed


async def test_what_arrives_while_the_connection_is_full_waits_for_the_task_in_order() -> None:
    writer = Writer()
    async with wait_live(writer) as waiting:
        await waiting.publish(2)
        writer.is_free = False
        await waiting.publish(3)
        writer.is_free = True
        await waiting.publish(4)
        yielded = [await waiting.coming, await anext(waiting.chunks)]

    assert [re.findall(rb"^id: (.*)$", each, re.MULTILINE)[0] for each in writer.written] == [b"1-2"]
    assert [re.findall(rb"^id: (.*)$", each, re.MULTILINE)[0] for each in yielded] == [b"1-3", b"1-4"]


async def test_a_large_entry_is_left_to_the_task_which_sends_it_in_parts() -> None:
    writer, text = Writer(), b"x" * 1_000_000
    async with wait_live(writer) as waiting:
        await waiting.publish(2, b'{"text":"' + text + b'"}')
        await waiting.publish(3)
        yielded = [await waiting.coming, await anext(waiting.chunks)]

    assert writer.written == []
    assert text in yielded[0]
    assert [re.findall(rb"^id: (.*)$", each, re.MULTILINE) for each in yielded] == [[b"1-2"], [b"1-3"]]


async def test_a_heartbeat_comes_after_a_silence_not_after_a_wait() -> None:
    writer, loop = Writer(), asyncio.get_running_loop()
    async with wait_live(writer, heartbeat_s=0.3) as waiting:
        await asyncio.sleep(0.15)
        await waiting.publish(2)
        written_at = loop.time()

        assert await waiting.coming == HEARTBEAT
        assert 0.28 < loop.time() - written_at < 0.59


class LateRows(Rows):
    """The head is readable `after` that many tries, the row of a signal never."""

    def __init__(self, *, after: int) -> None:
        super().__init__(at(1))
        self.after = after
        self.tries = 0

    async def load_head(self, principal: Principal, conversation_id: ConversationId) -> Head:
        self.tries += 1
        if self.tries <= self.after:
            raise Unavailable("Postgres")
        return Head(f"event: head_{self.tries}\n\n".encode(), queued=False)

    async def load_signal(self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId) -> bytes:
        raise Unavailable("Postgres")


class Hints:
    """Listens again, or brings a hint, when a test says so."""

    def __init__(self) -> None:
        self.reconnects = asyncio.Event()
        self.comes = asyncio.Event()

    async def listen(self, listening: Callable[[], None]) -> Any:
        listening()
        reconnecting = asyncio.create_task(self.reconnects.wait())
        coming = asyncio.create_task(self.comes.wait())
        await asyncio.wait((reconnecting, coming), return_when=asyncio.FIRST_COMPLETED)
        if reconnecting.done():
            self.reconnects.clear()
            raise Unavailable("Redis")
        self.comes.clear()
        yield Hint("signal", CONVERSATION, "sig_1")


async def read_heads(hints: Hints, rows: LateRows, *then: asyncio.Event) -> list[str]:
    """The heads that a client receives; each of `then` is set when it has the one before."""
    events = MemoryEvents()
    await events.publish(CONVERSATION, entry(1), after=None)
    hub = Hub(reader=events, hints=cast(Any, hints), rows=rows, metrics=IngressMetrics(), queue_bytes=10_000)
    running = asyncio.create_task(hub.run())
    client = await hub.open(ANN, CONVERSATION, at(1), None)
    waiting, received = list(then), ""
    async with (
        asyncio.timeout(10),
        aclosing(Feed(hub, heartbeat_s=0.01, unix_now=lambda: 0.0).chunks(client)) as chunks,
    ):
        async for chunk in chunks:
            received += chunk.decode()
            if b"head" in chunk:
                if not waiting:
                    break
                waiting.pop(0).set()
    running.cancel()
    await asyncio.wait([running])
    return re.findall(r"head_\d+", received)


async def test_a_head_that_is_unreadable_at_first_is_sent_later() -> None:
    assert await read_heads(Hints(), LateRows(after=2)) == ["head_3"]


async def test_a_hint_whose_row_is_unreadable_is_sent_with_the_head() -> None:
    hints = Hints()

    assert await read_heads(hints, LateRows(after=0), hints.comes) == ["head_1", "head_2"]


async def test_hints_missed_without_listeners_are_sent_with_the_head() -> None:
    hints = Hints()

    assert await read_heads(hints, LateRows(after=0), hints.reconnects) == ["head_1", "head_2"]


async def test_each_credential_of_a_user_gets_its_own_slot_back() -> None:
    """Principals of an API key and a token are equal, and share a stream, but limits count them apart."""
    by_token = replace(ANN, person="token:ann")
    slots = OpenSlots(max_total=10, max_per_user=2)
    hub = Hub(reader=MemoryEvents(), hints=NoHints(), rows=Rows(at(0)), metrics=IngressMetrics(), queue_bytes=1 << 20)
    feed = Feed(hub, heartbeat_s=60, unix_now=lambda: 0.0)
    recheck = Recheck(cast(Any, None), 60.0, lambda: 0.0)
    edge = StreamEdge(hub=hub, feed=feed, slots=slots, recheck=recheck, send_timeout_s=5.0)

    async def follow_as(principal: Principal) -> Subscription:
        with edge.slots.until_handed_over(principal):
            return await hub.open(principal, CONVERSATION, None, None)

    by_key = await follow_as(ANN)
    for _ in range(3):
        edge.close(await follow_as(by_token))

    assert slots.total == 1
    edge.close(by_key)
    assert slots.total == 0
