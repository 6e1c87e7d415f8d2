"""Clients that wait are told their place in the queue when it changes, and nobody is asked about who does not wait."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.leases import EventCursor
from everturn.events.stream import EncodedEvent, Entry
from everturn.queue.ports import Owned, QueuePosition, WaitingTurn
from everturn_testing.core import FixedClock
from ingress.stream.frames import ClientCursor, build_batch
from ingress.stream.hub import BATCH, Positions
from ingress.stream.rows import StreamRows
from ingress.stream.subscription import ConversationStream, Subscription

ANN = Principal("t", "p", "ann")
START = EventCursor(1, 1)


class World:
    """Positions over a queue that holds what `places` says."""

    def __init__(self) -> None:
        self.places: dict[ConversationId, QueuePosition] = {}
        self.asked: list[list[ConversationId]] = []
        self.gone = False
        self.meanwhile: list[ConversationStream] = []
        nothing: Any = None
        queue: Any = self
        rows = StreamRows(conversations=nothing, turns=nothing, inbox=nothing, queue=queue, clock=FixedClock())
        self.positions = Positions(rows)

    async def load_positions(self, asked: Sequence[Owned]) -> Mapping[ConversationId, WaitingTurn]:
        if self.gone:
            raise Unavailable("Postgres")
        self.asked.append([conversation_id for _, conversation_id in asked])
        for stream in self.meanwhile:
            stream.offer(build_batch(Entry(START, (EncodedEvent(EventCursor(1, 2), "chat.delta", b"{}"),))))
        return {one: WaitingTurn(TurnId("turn_1"), self.places[one]) for _, one in asked if one in self.places}

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
        stream.clients.add(Subscription(stream, cursor, None, START))


def told(stream: ConversationStream) -> list[bytes]:
    """What each client has got since the last time."""
    return [client.cursor.take() for client in stream.clients]


@pytest.fixture
def world() -> World:
    return World()


async def test_a_client_sees_its_place_fall_and_is_told_nothing_while_it_stays(world: World) -> None:
    stream = world.wait("conv_1", 2)
    await world.positions.tell()
    assert b'"position":2' in told(stream)[0]

    await world.positions.tell()
    assert told(stream) == [b""]
    world.places[stream.conversation_id] = QueuePosition(1)
    await world.positions.tell()

    assert b'"state":"queued","turn_id":"turn_1","position":1}' in told(stream)[0]


async def test_more_than_the_most_is_told_as_such(world: World) -> None:
    stream = world.wait("conv_1", 0)
    world.places[stream.conversation_id] = QueuePosition(100, more=True)

    await world.positions.tell()

    assert b'"position":100,"position_more":true' in told(stream)[0]


async def test_a_turn_that_was_taken_is_not_asked_about_again(world: World) -> None:
    stream = world.wait("conv_1", 0)
    world.places.clear()

    await world.positions.tell()
    await world.positions.tell()

    assert told(stream) == [b""]
    assert len(world.asked) == 1


async def test_a_row_that_comes_when_its_clients_have_gone_keeps_nothing_from_those_who_came_since(
    world: World,
) -> None:
    gone = world.wait("conv_1", 2)
    gone.clients.clear()
    world.positions.forget(gone)

    world.positions.note(gone, queued=True)
    present = world.wait("conv_1", 2)
    world.positions.note(gone, queued=True)
    await world.positions.tell()

    assert b'"position":2' in told(present)[0]
    assert [len(asked) for asked in world.asked] == [1]


async def test_while_nobody_waits_nothing_is_asked(world: World) -> None:
    stream = world.wait("conv_1", 0)
    world.positions.note(stream, queued=False)

    await world.positions.tell()

    assert world.asked == []


async def test_what_happened_while_the_queue_was_read_is_not_told_over(world: World) -> None:
    stream = world.wait("conv_1", 0)
    world.meanwhile = [stream]

    await world.positions.tell()

    assert b"position" not in told(stream)[0]


async def test_a_queue_that_can_not_be_read_is_asked_again(world: World) -> None:
    stream = world.wait("conv_1", 3)
    world.gone = True
    await world.positions.tell()
    world.gone = False

    await world.positions.tell()

    assert b'"position":3' in told(stream)[0]


async def test_where_many_wait_they_take_turns(world: World) -> None:
    for n in range(BATCH + 20):
        world.wait(f"conv_{n}", n)

    await world.positions.tell()
    await world.positions.tell()

    assert [len(asked) for asked in world.asked] == [BATCH, BATCH]
    assert len({one for asked in world.asked for one in asked}) == BATCH + 20
