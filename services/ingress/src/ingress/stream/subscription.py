"""One client of a stream, and one stream of a conversation with its clients."""

import asyncio
from dataclasses import dataclass, field

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.model.leases import EventCursor
from ingress.stream.cursor import ClientCursor
from ingress.stream.frames import Batch, TerminalFilter
from ingress.stream.rows import Snapshot
from ingress.stream.shared_read import SharedRead


@dataclass(slots=True, eq=False)
class Subscription:
    """One open client. The hub changes it; the client's own task empties it."""

    stream: "ConversationStream"
    cursor: ClientCursor
    expires_at: float | None
    start: EventCursor | None
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    resyncs: int = 0
    """Snapshots since an entry last followed one; paces the next."""

    def end(self) -> None:
        """Let the client's task finish."""
        self.ended = True
        self.wakeup.set()


@dataclass(slots=True, eq=False)
class ConversationStream:
    """A conversation that somebody follows. `position` is the last entry's id that the reader has seen."""

    conversation_id: ConversationId
    principal: Principal
    position: EventCursor
    snapshots: SharedRead[Snapshot]
    heads: SharedRead[bytes]
    clients: set[Subscription] = field(default_factory=set[Subscription])
    terminals: TerminalFilter = field(default_factory=TerminalFilter)
    version: int = 0
    """Counts entries; a row read while it changed may be older than what clients got."""

    def offer(self, batch: Batch) -> None:
        """Hand an entry to all clients."""
        self.position = batch.last
        self.version += 1
        for client in self.clients:
            client.cursor.offer(batch)
            client.wakeup.set()

    def offer_hint(self, frame: bytes) -> None:
        """Hand an event without id to all clients."""
        for client in self.clients:
            client.cursor.offer_hint(frame)
            client.wakeup.set()

    def lose_all(self) -> None:
        """All clients must be resynced."""
        for client in self.clients:
            client.cursor.lose("outage")
            client.wakeup.set()

    def end_all(self) -> None:
        """All clients are done."""
        for client in self.clients:
            client.end()
