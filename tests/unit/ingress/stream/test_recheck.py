"""An open stream rechecks its caller, and ends if the caller would be rejected."""

import asyncio
from contextlib import aclosing
from typing import Any, cast

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.stream import EncodedEvent, Entry
from everturn_testing.core import FixedClock
from everturn_testing.events.events import MemoryEvents
from ingress.auth.callers import Caller
from ingress.auth.revocation import CallerCheck, Recheck
from ingress.errors import unauthorized
from ingress.metrics import IngressMetrics
from ingress.stream.feed import Feed
from ingress.stream.frames import UNAUTHORIZED, build_batch
from ingress.stream.hub import Hub
from ingress.stream.rows import Head, Snapshot, StreamRows

ANN = Caller(Principal("t", "p", "ann"))


class Gate:
    """Answers as configured; counts its calls."""

    def __init__(self) -> None:
        self.refusal: Exception | None = None
        self.hangs = False
        self.calls = 0

    async def recheck(self, caller: Caller) -> None:
        assert caller is ANN
        self.calls += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.refusal:
            raise self.refusal


def begin(gate: Gate, clock: FixedClock) -> CallerCheck:
    return Recheck(gate.recheck, every_s=60, monotonic=clock.monotonic).begin(ANN)


async def test_it_checks_once_per_interval_and_not_before() -> None:
    gate, clock = Gate(), FixedClock()
    revocation = begin(gate, clock)

    for _ in range(120):
        assert await revocation.try_refusal() is None
        clock.advance(1)

    assert gate.calls == 1


async def test_a_refusal_ends_the_stream() -> None:
    gate, clock = Gate(), FixedClock()
    revocation = begin(gate, clock)
    gate.refusal = unauthorized("revoked")
    assert await revocation.try_refusal() is None

    clock.advance(60)

    assert await revocation.try_refusal() is not None


async def test_a_caller_that_cannot_be_checked_stays_until_the_next_check() -> None:
    gate, clock = Gate(), FixedClock()
    revocation = begin(gate, clock)
    gate.refusal = Unavailable("down")
    clock.advance(60)
    assert await revocation.try_refusal() is None

    gate.refusal, gate.hangs = None, True
    clock.advance(60)
    assert await revocation.try_refusal() is None

    gate.hangs, gate.refusal = False, unauthorized("revoked")
    clock.advance(60)
    assert await revocation.try_refusal() is not None


class NoRows(StreamRows):
    def __init__(self) -> None:
        nothing = cast(Any, None)
        super().__init__(conversations=nothing, turns=nothing, inbox=nothing, queue=nothing, clock=FixedClock())

    async def check_owner(self, principal: Principal, conversation_id: ConversationId) -> None:
        """It belongs to the caller."""

    async def load_snapshot(self, principal: Principal, conversation_id: ConversationId) -> Snapshot:
        raise Unavailable("the stream ends before it needs one")

    async def load_head(self, principal: Principal, conversation_id: ConversationId) -> Head:
        return Head(b"", queued=False)


async def test_a_comment_announces_the_end_of_a_stream() -> None:
    gate, clock = Gate(), FixedClock()
    hub = Hub(reader=MemoryEvents(), hints=cast(Any, None), rows=NoRows(), metrics=IngressMetrics(), queue_bytes=10_000)
    client = await hub.open(ANN.principal, ConversationId("conv_1"), None, None)
    revocation = begin(gate, clock)
    gate.refusal = unauthorized("revoked")
    clock.advance(60)

    async with aclosing(Feed(hub, heartbeat_s=60, unix_now=lambda: 0.0).chunks(client, revocation)) as chunks:
        sent = [chunk async for chunk in chunks]

    assert sent[0].startswith(b"event: ready")
    assert sent[1:] == [UNAUTHORIZED]


def build_entry(prev: EventCursor, cursor: EventCursor) -> Entry:
    return Entry(prev, (EncodedEvent(cursor, "chat.delta", b"{}"),))


class NoWrites:
    is_free = True

    def write(self, piece: bytes) -> None:
        raise AssertionError("the credential must be rechecked first")


async def test_what_arrives_when_a_recheck_is_due_is_left_to_the_client_s_task() -> None:
    gate, clock = Gate(), FixedClock()
    conversation_id = ConversationId("conv_1")
    events, last = MemoryEvents(), EventCursor(1, 1)
    await events.publish(conversation_id, build_entry(ORIGIN, last), after=None)
    hub = Hub(reader=events, hints=cast(Any, None), rows=NoRows(), metrics=IngressMetrics(), queue_bytes=10_000)
    client = await hub.open(ANN.principal, conversation_id, last, None)
    feed = Feed(hub, heartbeat_s=60, unix_now=lambda: 0.0)
    async with asyncio.timeout(10), aclosing(feed.chunks(client, begin(gate, clock), NoWrites())) as chunks:
        await anext(chunks)
        coming = asyncio.ensure_future(anext(chunks))
        while not client.is_waiting:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        gate.refusal = unauthorized("revoked")
        clock.advance(60)

        client.stream.offer(build_batch(build_entry(last, EventCursor(1, 2))))

        assert b"id: 1-2" in await coming
        assert [chunk async for chunk in chunks] == [UNAUTHORIZED]


async def test_an_expired_credential_ends_the_stream_the_same_way() -> None:
    hub = Hub(reader=MemoryEvents(), hints=cast(Any, None), rows=NoRows(), metrics=IngressMetrics(), queue_bytes=10_000)
    client = await hub.open(ANN.principal, ConversationId("conv_1"), None, 1.0)

    async with aclosing(Feed(hub, heartbeat_s=60, unix_now=lambda: 1.0).chunks(client)) as chunks:
        sent = [chunk async for chunk in chunks]

    assert sent[-1] == UNAUTHORIZED
