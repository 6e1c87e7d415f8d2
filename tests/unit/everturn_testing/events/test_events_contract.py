"""Event streams without order break the contract; the tests' own follow set keeps its port."""

import pytest

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.events.cursor import EventCursor
from everturn.events.stream import Entry
from everturn_testing.events.events import MemoryEvents
from everturn_testing.events.events_contract import Events, EventsContract, entry


class Careless(MemoryEvents):
    async def publish(
        self,
        conversation_id: ConversationId,
        entry: Entry,
        *,
        after: EventCursor | None,
        owner: Principal | None = None,
    ) -> None:
        await super().publish(conversation_id, entry, after=None)


async def test_streams_that_take_holes_are_noticed() -> None:
    careless = Careless()

    with pytest.raises(pytest.fail.Exception):
        await EventsContract().test_an_entry_after_a_gap_is_refused_unless_unchecked(
            Events(careless, careless, careless)
        )


def test_an_entry_follows_the_event_before_it() -> None:
    assert entry(3, 5, 6).prev == EventCursor(3, 4)
    assert [event.id.n for event in entry(3, 5, 6).events] == [5, 6]
