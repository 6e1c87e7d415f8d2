"""The values of the live wire."""

import pytest

from everturn.core.errors import EverturnError
from everturn.core.ids import ConversationId
from everturn.events.redis import RedisEventReader, RedisEventWriter
from everturn.events.redis_hints import RedisHints, RedisInboxBells
from everturn.events.stream import EventReader, EventsLost, EventWriter, Hint, Hints, InboxBells
from everturn_testing.events.memory_events import MemoryEvents
from everturn_testing.port_shape import find_differences


def test_a_hint_about_the_state_names_no_signal() -> None:
    assert Hint("status", ConversationId("c")).signal_id == ""


def test_lost_events_are_no_failure_of_the_wire() -> None:
    assert EventsLost.__base__ is EverturnError


@pytest.mark.parametrize(
    ("port", "driver"),
    [
        (EventWriter, RedisEventWriter),
        (EventWriter, MemoryEvents),
        (EventReader, RedisEventReader),
        (EventReader, MemoryEvents),
        (Hints, RedisHints),
        (InboxBells, RedisInboxBells),
    ],
)
def test_a_driver_takes_the_ports_calls(port: type, driver: type) -> None:
    assert find_differences(port, driver) == []
