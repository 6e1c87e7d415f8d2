from chat_proc.stream.emitter import EventNumbering
from everturn.core.ids import ConversationId, TurnId
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.model import ConvTitle, parse_envelope
from everturn_testing.core import FixedClock

CONVERSATION, TURN = ConversationId("conv_1"), TurnId("turn_1")


def number(after: EventCursor) -> EventNumbering:
    return EventNumbering(FixedClock(), conversation_id=CONVERSATION, turn_id=TURN, fence=2, after=after)


def test_a_new_fence_counts_from_one() -> None:
    new, same = number(EventCursor(1, 9)), number(EventCursor(2, 9))

    assert [new.begin(ConvTitle(title=text)).id for text in "ab"] == [EventCursor(2, 1), EventCursor(2, 2)]
    assert same.begin(ConvTitle(title="a")).id == EventCursor(2, 10)
    assert (new.cursor, same.cursor) == (EventCursor(2, 2), EventCursor(2, 10))


def test_an_event_says_whose_it_is() -> None:
    event = number(ORIGIN).begin(ConvTitle(title="a"), 3).encode()

    envelope = parse_envelope(event.payload)
    assert (envelope.id, envelope.conversation_id, envelope.turn_id, envelope.round) == ("2-1", CONVERSATION, TURN, 3)
    assert (envelope.type, event.type) == ("conv.title", "conv.title")
