"""The event stream to clients: one ordered stream of encoded events per conversation, and hints that carry ids only."""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from everturn.core.errors import EverturnError
from everturn.core.identity import Lane, Principal
from everturn.core.ids import ConversationId
from everturn.events.cursor import EventCursor

ERASED_FENCE = 2**53 - 1
"""Above every fence of a lease, and still exact where numbers are doubles."""


@dataclass(frozen=True, slots=True)
class EncodedEvent:
    """One event as clients receive it: `payload` is the encoded envelope, `type` its event type."""

    id: EventCursor
    type: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """Several events sent at once. `prev` is the id before the first; a reader whose cursor is before it
    has a gap."""

    prev: EventCursor
    events: tuple[EncodedEvent, ...]


@dataclass(frozen=True, slots=True)
class Hint:
    """Something changed outside the stream: read the row. `signal_id` is empty for a change of status."""

    kind: Literal["status", "signal"]
    conversation_id: ConversationId
    signal_id: str = ""


class EventsLost(EverturnError):
    """The stream does not end where this entry must follow: events are missing, or others were appended."""


class EventWriter(Protocol):
    """Writing: the holder of the lease publishes; erasing a conversation also erases its stream."""

    async def load_last(self, conversation_id: ConversationId) -> EventCursor | None:
        """The last id appended, even if all entries were removed since; None if there is no stream."""
        ...

    async def load_newest(
        self, conversation_id: ConversationId, *, max_entries: int, before: EventCursor | None = None
    ) -> tuple[Entry, ...]:
        """The last entries, or the last whose id is below `before`; oldest first."""
        ...

    async def publish(
        self,
        conversation_id: ConversationId,
        entry: Entry,
        *,
        after: EventCursor | None,
        owner: Principal | None = None,
    ) -> None:
        """Append one entry if the stream ends at the event `after` (ORIGIN: there is no stream; None: anywhere).

        The entry's id is that of its last event. If it is already the last one, it is not appended again. Raises
        StaleFence when a newer fence has written, EventsLost when the stream ends elsewhere, Unavailable when Redis
        is down. The stream keeps about 2,000 entries, and expires an hour after the last. Above the byte limits, this
        stream or the largest other streams of its owner or the owner's tenant are emptied.
        """
        ...

    async def erase(self, conversation_id: ConversationId) -> None:
        """Remove all events; for an hour every publisher gets StaleFence. Raises Unavailable."""
        ...


class FollowSet(Protocol):
    """The conversations that a reader follows, and the reader's cursor in each; shared by a hub and its reader."""

    def cursors(self) -> dict[ConversationId, EventCursor]: ...

    def find_cursor(self, conversation_id: ConversationId) -> EventCursor | None:
        """That of one conversation; None if it is not followed."""
        ...

    async def changed(self) -> Collection[ConversationId]:
        """Wait until a conversation has been added, and return all added since the last call; one that was removed and
        added again counts as added."""
        ...


class EventReader(Protocol):
    """The client-facing side."""

    async def load_last(self, conversation_id: ConversationId) -> EventCursor | None:
        """The last id appended, even if all entries were removed since; None if there is no stream."""
        ...

    async def load_last_of(self, conversation_ids: Sequence[ConversationId]) -> Mapping[ConversationId, EventCursor]:
        """The same for each of these streams, without those that do not exist; any number of streams."""
        ...

    async def load_after(
        self, conversation_id: ConversationId, after: EventCursor, *, max_entries: int
    ) -> tuple[Entry, ...]:
        """Entries whose id is above `after`, oldest first."""
        ...

    def follow(self, conversations: FollowSet) -> AsyncGenerator[tuple[ConversationId, Entry]]:
        """New entries of all conversations in the set, as they arrive. The set can change meanwhile. Raises
        Unavailable.

        Use it inside `contextlib.aclosing`: closing it releases its connection at once.
        """
        ...


class Notifications(Protocol):
    """Notifies workers and clients of what was stored. Best effort: a lost notification delays the reaction by a few
    seconds."""

    async def send(self, hint: Hint, *, ring_lane: Lane | None = None) -> Mapping[str, str]:
        """Send the hint to ingresses, an inbox notification if the hint is about a signal, and, if `ring_lane` is
        given, the conversation's doorbell to that lane.

        If Redis rejects one, the others are still sent. Returns what was not sent, and why; if the call fails, that is
        all of them, although some may have been sent. Takes at most 250 ms, or 1 s with a doorbell.
        """
        ...


class Hints(Protocol):
    """Receives the hints that ingresses send, about all conversations."""

    def listen(self, listening: Callable[[], None]) -> AsyncGenerator[Hint]:
        """All hints since `listening` was called. Raises Unavailable when Redis is down."""
        ...


class InboxBells(Protocol):
    """Receives inbox notifications, which make a conversation's running turn check for signals at once."""

    def listen(self) -> AsyncGenerator[ConversationId]:
        """Ids of conversations that were notified since the call. Raises Unavailable when Redis is down."""
        ...


@dataclass(frozen=True, slots=True)
class RedisUse:
    """`used`, `limit` (0: unlimited) and `of_user` are bytes. Only `probe` fills `of_user` and `refusal`, which says
    why Redis did not store a value, for example because it is out of memory."""

    used: int
    limit: int
    of_user: int = 0
    refusal: str = ""

    @property
    def share(self) -> float:
        """The used part of the limit; 0 without a limit."""
        return self.used / self.limit if self.limit else 0.0


class StreamMemory(Protocol):
    """All calls raise Unavailable when Redis is down."""

    async def load_use(self) -> RedisUse:
        """The total use, within 250 ms."""
        ...

    async def probe(self, owner: Principal) -> RedisUse:
        """The total use, that of the owner's events, and whether Redis refuses to store a value now. Within 500 ms,
        because accepting a message waits for it."""
        ...

    async def check(self) -> None:
        """Also raises Unavailable when little memory is left."""
        ...

    async def note_ended(self, conversation_id: ConversationId, owner: Principal, last: EventCursor) -> None:
        """Record that the end of a turn was announced with the event `last`: its events are soon no longer needed."""
        ...

    async def trim_ended(self) -> int:
        """Remove the events of turns whose end was recorded some time ago; returns the number of those ends. Called
        every 10 s, it leaves no such event for longer than a minute."""
        ...
