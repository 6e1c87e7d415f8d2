"""The live wire to clients: one ordered stream of encoded events per conversation, and hints that carry ids only."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from everturn.core.errors import EverturnError
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.core.leases import EventCursor


@dataclass(frozen=True, slots=True)
class EncodedEvent:
    """One event as clients get it: `payload` is the encoded envelope, `type` its event type."""

    id: EventCursor
    type: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """Several events sent at once. `prev` is the id before the first; a reader whose cursor is another has a gap."""

    prev: EventCursor
    events: tuple[EncodedEvent, ...]


@dataclass(frozen=True, slots=True)
class Hint:
    """Something changed outside the stream: look at the row. `signal_id` is empty for a change of status."""

    kind: Literal["status", "signal"]
    conversation_id: ConversationId
    signal_id: str = ""


class EventsLost(EverturnError):
    """The stream does not end where this entry was to follow: something is missing, or came in between."""


class EventWriter(Protocol):
    """The lease holder's end."""

    async def load_last(self, conversation_id: ConversationId) -> EventCursor | None:
        """The newest id in the stream; None when the stream is empty or gone."""
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
        """Append one entry where the stream ends at the event `after`, at ORIGIN if there is no stream; None: anywhere.

        Its id is its last event's; an entry that is the stream's last already is not appended again. Raises StaleFence
        when a newer fence has written, EventsLost when the stream ends elsewhere, Unavailable when the wire is down.
        The stream keeps about 2,000 entries for an hour. The bytes of a stream, and of all streams of its owner and
        the owner's tenant, are bounded: older entries give way.
        """
        ...

    async def trim(self, conversation_id: ConversationId, before: EventCursor) -> None:
        """Entries below `before` are not needed to read this conversation any more."""
        ...


ERASED_FENCE = 2**53 - 1
"""Above every fence of a lease, and still exact where numbers are doubles."""


class EventErasure(Protocol):
    """What erasing a conversation needs of its stream."""

    async def erase(self, conversation_id: ConversationId) -> None:
        """Remove all events; for an hour whoever still publishes is told StaleFence. Raises Unavailable."""
        ...


class FollowSet(Protocol):
    """Which conversations a reader follows, and from where; shared by a hub and its reader."""

    def positions(self) -> dict[ConversationId, EventCursor]: ...

    async def changed(self) -> None:
        """Return once a conversation was added."""
        ...


class EventReader(Protocol):
    """A client-facing end."""

    async def load_last(self, conversation_id: ConversationId) -> EventCursor | None:
        """The newest id in the stream; None when the stream is empty or gone."""
        ...

    async def load_after(
        self, conversation_id: ConversationId, after: EventCursor, *, max_entries: int
    ) -> tuple[Entry, ...]:
        """Entries whose id is above `after`, oldest first."""
        ...

    def follow(self, conversations: FollowSet) -> AsyncGenerator[tuple[ConversationId, Entry]]:
        """New entries of all conversations in the set, as they come. The set may change meanwhile. Raises Unavailable.

        Use it inside `contextlib.aclosing`: closing it gives its connection back at once.
        """
        ...


class Hints(Protocol):
    """Hints, best effort: losing one costs a client a few seconds of seeing the old state."""

    async def send(self, hint: Hint) -> None: ...

    def listen(self, listening: Callable[[], None]) -> AsyncGenerator[Hint]:
        """All hints from the call of `listening` on. Raises Unavailable when the wire is down."""
        ...


class InboxBells(Protocol):
    """Rings the running turn of a conversation, so that it looks for signals at once."""

    async def ring(self, conversation_id: ConversationId) -> None: ...

    def listen(self) -> AsyncGenerator[ConversationId]:
        """Ids of conversations whose inbox was rung, from now on. Raises Unavailable when the wire is down."""
        ...


# The memory of the wire: how much of it is used, by whom, and what may be removed.


@dataclass(frozen=True, slots=True)
class WireUse:
    """Bytes: used in all, what may be used (0: unlimited), and the events of one user."""

    used: int
    limit: int
    of_user: int = 0

    @property
    def share(self) -> float:
        """The used part of the limit; 0 without a limit."""
        return self.used / self.limit if self.limit else 0.0


class WireMemory(Protocol):
    """All calls raise Unavailable when the wire is down."""

    async def load_use(self, owner: Principal | None = None) -> WireUse:
        """Within 250 ms, because accepting a message waits for it."""
        ...

    async def check(self) -> None:
        """Raises Unavailable also when little is left."""
        ...

    async def note_ended(self, conversation_id: ConversationId, owner: Principal, last: EventCursor) -> None:
        """Clients were told that a turn ended, with the event `last`: its events are not needed for long."""
        ...

    async def trim_ended(self) -> int:
        """Remove the events of turns whose end was noted some time ago; how many ends those were. Called every 10 s,
        it leaves no such event for longer than a minute."""
        ...
