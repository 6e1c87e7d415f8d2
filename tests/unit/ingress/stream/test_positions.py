"""Waiting clients receive their position in the queue when it changes; no query is made for others."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.events.cursor import EventCursor
from everturn.events.stream import EncodedEvent, Entry
from everturn.queue.model import Owned, QueuePosition, WaitingTurn
from everturn_testing.core import FixedClock
from ingress.stream.frames import ClientCursor, build_batch
from ingress.stream.hub import BATCH, ConversationStream, QueuePositions, Subscription
from ingress.stream.rows import StreamRows

ANN = Principal("t", "p", "ann")
START = EventCursor(1, 1)


class World:
    """`QueuePositions` over a queue that holds what `places` says."""

    def __init__(self) -> None:
        self.places: dict[ConversationId, QueuePosition] = {}
        self.queries: list[list[ConversationId]] = []
        self.gone = False
        self.meanwhile: list[ConversationStream] = []
        nothing: Any = None
        queue: Any = self
        rows = StreamRows(conversations=nothing, turns=nothing, inbox=nothing, queue=queue, clock=FixedClock())
        self.positions = QueuePositions(rows)

    async def load_positions(self, conversations: Sequence[Owned]) -> Mapping[ConversationId, WaitingTurn]:
        if self.gone:
            raise Unavailable("Postgres")
        self.queries.append([conversation_id for _, conversation_id in conversations])
        for stream in self.meanwhile:
            stream.offer(build_batch(Entry(START, (EncodedEvent(EventCursor(1, 2), "chat.delta", b"{}"),))))
        return {one: WaitingTurn(TurnId("turn_1"), self.places[one]) for _, one in conversations if one in self.places}

    def wait(self, name: str, ahead: int) -> ConversationStream:
        """A followed conversation that is queued."""
        nothing = cast(Any, None)
        stream = ConversationStream(ConversationId(name), ANN, START, nothing, nothing)
        self.add_client(stream)
        self.places[stream.conversation_id] = QueuePosition(ahead)
        self.positions.note(stream, queued=True)
        return stream

    def add_client(self, stream: ConversationStream) -> None:
        cursor = ClientCursor(START, max_bytes=10_000)
        cursor.reach_end(START, found_any=False)
        stream.clients.add(Subscription(stream, stream.principal, cursor, None, START))


def received(stream: ConversationStream) -> list[bytes]:
    """What each client has received since the last call."""
    return [client.cursor.take() for client in stream.clients]


@pytest.fixture
def world() -> World:
    return World()


async def test_a_client_receives_its_position_only_when_it_changes(world: World) -> None:
    stream = world.wait("conv_1", 2)
    await world.positions.publish()
    assert b'"position":2' in received(stream)[0]

    await world.positions.publish()
    assert received(stream) == [b""]
    world.places[stream.conversation_id] = QueuePosition(1)
    await world.positions.publish()

    assert b'"state":"queued","turn_id":"turn_1","position":1}' in received(stream)[0]


async def test_a_position_above_the_maximum_is_marked(world: World) -> None:
    stream = world.wait("conv_1", 0)
    world.places[stream.conversation_id] = QueuePosition(100, more=True)

    await world.positions.publish()

    assert b'"position":100,"position_more":true' in received(stream)[0]


async def test_no_query_is_made_for_a_turn_that_has_started(world: World) -> None:
    stream = world.wait("conv_1", 0)
    world.places.clear()

    await world.positions.publish()
    await world.positions.publish()

    assert received(stream) == [b""]
    assert len(world.queries) == 1


async def test_a_late_row_of_a_closed_stream_does_not_affect_a_new_one(
    world: World,
) -> None:
    gone = world.wait("conv_1", 2)
    gone.clients.clear()
    world.positions.forget(gone)

    world.positions.note(gone, queued=True)
    present = world.wait("conv_1", 2)
    world.positions.note(gone, queued=True)
    await world.positions.publish()

    assert b'"position":2' in received(present)[0]
    assert [len(queries) for queries in world.queries] == [1]


async def test_no_query_is_made_while_no_turn_waits(world: World) -> None:
    stream = world.wait("conv_1", 0)
    world.positions.note(stream, queued=False)

    await world.positions.publish()

    assert world.queries == []


async def test_a_stale_position_does_not_replace_a_newer_state(world: World) -> None:
    stream = world.wait("conv_1", 0)
    world.meanwhile = [stream]

    await world.positions.publish()

    assert b"position" not in received(stream)[0]


async def test_a_failed_query_of_the_queue_is_repeated(world: World) -> None:
    stream = world.wait("conv_1", 3)
    world.gone = True
    await world.positions.publish()
    world.gone = False

    await world.positions.publish()

    assert b'"position":3' in received(stream)[0]


async def test_many_waiting_streams_are_queried_in_turn(world: World) -> None:
    for n in range(BATCH + 20):
        world.wait(f"conv_{n}", n)

    await world.positions.publish()
    await world.positions.publish()

    assert [len(queries) for queries in world.queries] == [BATCH, BATCH]
    assert len({one for queries in world.queries for one in queries}) == BATCH + 20
