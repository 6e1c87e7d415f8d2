"""The values of the event stream."""

from everturn.core.errors import EverturnError
from everturn.core.ids import ConversationId
from everturn.events.stream import EventsLost, Hint


def test_a_hint_about_the_state_names_no_signal() -> None:
    assert Hint("status", ConversationId("c")).signal_id == ""


def test_lost_events_are_no_failure_of_redis() -> None:
    assert EventsLost.__base__ is EverturnError
