"""The in-memory event streams keep the contract that Redis keeps, and can be lost and down."""

import pytest

from everturn.core.errors import Unavailable
from everturn.events.stream import EventsLost
from everturn_testing.core import SequentialIds
from everturn_testing.events.events_contract import Events, EventsContract, entry
from everturn_testing.events.memory_events import MemoryEvents


class TestMemoryEvents(EventsContract):
    @pytest.fixture
    def events(self) -> Events:
        both = MemoryEvents()
        return Events(both, both, both)


async def test_after_a_loss_only_a_first_entry_is_taken() -> None:
    events, conversation_id = MemoryEvents(), SequentialIds().conversation()
    await events.publish(conversation_id, entry(1, 1, 1), after=None)

    events.lose_all()

    with pytest.raises(EventsLost):
        await events.publish(conversation_id, entry(1, 2, 2), after=entry(1, 1, 1).events[-1].id)


async def test_while_down_nothing_is_published() -> None:
    events = MemoryEvents()
    events.down = True

    with pytest.raises(Unavailable):
        await events.publish(SequentialIds().conversation(), entry(1, 1, 1), after=None)
