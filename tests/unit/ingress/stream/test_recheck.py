"""An open stream rechecks its caller, and ends if the caller would be rejected."""

import asyncio
from contextlib import aclosing
from typing import Any, cast

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn_testing.core import FixedClock
from everturn_testing.events.events import MemoryEvents
from ingress.auth.callers import Caller
from ingress.auth.revocation import CallerCheck, Recheck
from ingress.errors import unauthorized
from ingress.metrics import IngressMetrics
from ingress.stream.feed import Feed
from ingress.stream.frames import UNAUTHORIZED
from ingress.stream.hub import Hub
from ingress.stream.rows import Snapshot, StreamRows

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
    standing = begin(gate, clock)

    for _ in range(120):
        assert await standing.try_refusal() is None
        clock.advance(1)

    assert gate.calls == 1


async def test_a_refusal_ends_the_stream() -> None:
    gate, clock = Gate(), FixedClock()
    standing = begin(gate, clock)
    gate.refusal = unauthorized("revoked")
    assert await standing.try_refusal() is None

    clock.advance(60)

    assert await standing.try_refusal() is not None


async def test_a_caller_that_cannot_be_checked_stays_until_the_next_check() -> None:
    gate, clock = Gate(), FixedClock()
    standing = begin(gate, clock)
    gate.refusal = Unavailable("down")
    clock.advance(60)
    assert await standing.try_refusal() is None

    gate.refusal, gate.hangs = None, True
    clock.advance(60)
    assert await standing.try_refusal() is None

    gate.hangs, gate.refusal = False, unauthorized("revoked")
    clock.advance(60)
    assert await standing.try_refusal() is not None


class NoRows(StreamRows):
    def __init__(self) -> None:
        nothing = cast(Any, None)
        super().__init__(conversations=nothing, turns=nothing, inbox=nothing, queue=nothing, clock=FixedClock())

    async def check_owner(self, principal: Principal, conversation_id: ConversationId) -> None:
        """It belongs to the caller."""

    async def load_snapshot(self, principal: Principal, conversation_id: ConversationId) -> Snapshot:
        raise Unavailable("the stream ends before it needs one")


async def test_a_comment_announces_the_end_of_a_stream() -> None:
    gate, clock = Gate(), FixedClock()
    hub = Hub(reader=MemoryEvents(), hints=cast(Any, None), rows=NoRows(), metrics=IngressMetrics(), queue_bytes=10_000)
    client = await hub.open(ANN.principal, ConversationId("conv_1"), None, None)
    standing = begin(gate, clock)
    gate.refusal = unauthorized("revoked")
    clock.advance(60)

    async with aclosing(Feed(hub, heartbeat_s=60, unix_now=lambda: 0.0).chunks(client, standing)) as chunks:
        sent = [chunk async for chunk in chunks]

    assert sent[0].startswith(b"event: ready")
    assert sent[1:] == [UNAUTHORIZED]


async def test_an_expired_credential_ends_the_stream_the_same_way() -> None:
    hub = Hub(reader=MemoryEvents(), hints=cast(Any, None), rows=NoRows(), metrics=IngressMetrics(), queue_bytes=10_000)
    client = await hub.open(ANN.principal, ConversationId("conv_1"), None, 1.0)

    async with aclosing(Feed(hub, heartbeat_s=60, unix_now=lambda: 1.0).chunks(client)) as chunks:
        sent = [chunk async for chunk in chunks]

    assert sent[-1] == UNAUTHORIZED
