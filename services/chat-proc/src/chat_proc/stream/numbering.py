"""Ids of the events that are told of one turn under one lease."""

from everturn.model.ids import ConversationId, TurnId
from everturn.model.leases import EventCursor
from everturn.ports.clock import Clock, iso
from everturn.ports.event_stream import EncodedEvent
from everturn.wire.events import AnyEvent, ChatPhase, Envelope, encode_envelope


class EventNumbering:
    """Gives each event the id after the last one, and never an id twice. `after` may be of an older fence."""

    def __init__(
        self, clock: Clock, *, conversation_id: ConversationId, turn_id: TurnId, fence: int, after: EventCursor
    ) -> None:
        self.conversation_id = conversation_id
        self._clock = clock
        self._turn_id = turn_id
        self._fence = fence
        self._cursor = after
        self.last_at_s = clock.monotonic()
        """When the turn last had anything to say, in seconds of the monotonic clock; that it waits is nothing."""

    @property
    def cursor(self) -> EventCursor:
        """The last id given out."""
        return self._cursor

    def encode(self, data: AnyEvent, round_number: int | None = None) -> EncodedEvent:
        """The event as clients get it."""
        if not isinstance(data, ChatPhase) or data.phase == "model_replying":
            self.last_at_s = self._clock.monotonic()
        # Another numbering before this one may have given out ids under the same fence.
        n = self._cursor.n if self._cursor.fence == self._fence else 0
        self._cursor = EventCursor(self._fence, n + 1)
        envelope = Envelope(
            id=str(self._cursor),
            type=data.type,
            ts=iso(self._clock.now()),
            conversation_id=self.conversation_id,
            turn_id=self._turn_id,
            round=round_number,
            data=data,
        )
        return EncodedEvent(self._cursor, data.type, encode_envelope(envelope))
