"""One client of a stream, and one stream of a conversation with its clients."""

import asyncio
from dataclasses import dataclass, field

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.core.leases import EventCursor
from everturn.queue.ports import QueuePosition
from ingress.admission.slots import OpenSlots
from ingress.stream.frames import Batch, ClientCursor, TerminalFilter
from ingress.stream.rows import Head, SharedRead, Snapshot


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
    read_number: int = 0
    """Which of the stream's reads was this client's last."""
    snapshot_slot: OpenSlots | None = None
    """Holds a slot here while a large snapshot is read for the client, or is on its way to it."""
    waits_for_slot: bool = False
    """Its snapshot was too large to be sent without a slot, and there was none."""

    def release_snapshot(self) -> None:
        """The client has taken its snapshot, or is gone."""
        if self.snapshot_slot is not None:
            self.snapshot_slot.give_back(self.stream.principal)
            self.snapshot_slot = None

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
    heads: SharedRead[Head]
    clients: set[Subscription] = field(default_factory=set[Subscription])
    terminals: TerminalFilter = field(default_factory=TerminalFilter)
    version: int = 0
    """Counts entries; a row read while it changed may be older than what clients got."""
    told_position: QueuePosition | None = None
    """What all clients know; None makes it be told again."""
    reads: int = 0
    """Counts what clients read for themselves: such a client may be ahead of the entries counted here."""

    def note_read(self, client: Subscription) -> None:
        """The client has read entries or a snapshot for itself."""
        self.reads += 1
        client.read_number = self.reads

    def offer(self, batch: Batch) -> None:
        """Hand an entry to all clients."""
        self.position = batch.last
        self.version += 1
        for client in self.clients:
            client.cursor.offer(batch)
            client.wakeup.set()

    def offer_hint(self, frame: bytes, *, read_at: int) -> None:
        """Hand an event without id to all clients, from a row that was read when `reads` was `read_at`.

        Who has read something since may know better than that row, and reads it again.
        """
        for client in self.clients:
            if client.read_number > read_at:
                client.cursor.stale_hints = True
            else:
                client.cursor.offer_hint(frame)
            client.wakeup.set()

    def defer_hint(self) -> None:
        """Let all clients read the row for themselves."""
        for client in self.clients:
            client.cursor.stale_hints = True
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
