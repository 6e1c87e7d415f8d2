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
    """One open client. The hub adds frames; the client's own task sends them."""

    stream: "ConversationStream"
    cursor: ClientCursor
    expires_at: float | None
    start: EventCursor | None
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    resyncs: int = 0
    """Number of snapshots since the last entry; determines the backoff before the next."""
    read_number: int = 0
    """The number of this client's last read among the stream's `reads`."""
    snapshot_slot: OpenSlots | None = None
    """The slot held here while a large snapshot is read for the client or sent to it."""
    waits_for_slot: bool = False
    """Its snapshot was too large to send without a slot, and no slot was free."""

    def release_snapshot(self) -> None:
        """Release the slot once the client has received its snapshot or is gone."""
        if self.snapshot_slot is not None:
            self.snapshot_slot.give_back(self.stream.principal)
            self.snapshot_slot = None

    def end(self) -> None:
        """Make the client's task finish."""
        self.ended = True
        self.wakeup.set()


@dataclass(slots=True, eq=False)
class ConversationStream:
    """A conversation with at least one client. `position` is the id of the last entry that the reader has seen."""

    conversation_id: ConversationId
    principal: Principal
    position: EventCursor
    snapshots: SharedRead[Snapshot]
    heads: SharedRead[Head]
    clients: set[Subscription] = field(default_factory=set[Subscription])
    terminals: TerminalFilter = field(default_factory=TerminalFilter)
    version: int = 0
    """Counts entries; a row read while it changed may be older than what clients received."""
    published_position: QueuePosition | None = None
    """The queue position that all clients know; None makes the next one be sent again."""
    reads: int = 0
    """Counts the clients' own reads: a client that read for itself may be ahead of the entries counted here."""

    def note_read(self, client: Subscription) -> None:
        """Record that the client has read entries or a snapshot for itself."""
        self.reads += 1
        client.read_number = self.reads

    def offer(self, batch: Batch) -> None:
        """Offer an entry to all clients."""
        self.position = batch.last
        self.version += 1
        for client in self.clients:
            client.cursor.offer(batch)
            client.wakeup.set()

    def offer_hint(self, frame: bytes, *, read_at: int) -> None:
        """Offer an event without id to all clients, from a row that was read when `reads` was `read_at`.

        A client that has read since then may have newer state than that row, so it reads the row again.
        """
        for client in self.clients:
            if client.read_number > read_at:
                client.cursor.stale_hints = True
            else:
                client.cursor.offer_hint(frame)
            client.wakeup.set()

    def defer_hint(self) -> None:
        """Make all clients read the row for themselves."""
        for client in self.clients:
            client.cursor.stale_hints = True
            client.wakeup.set()

    def lose_all(self) -> None:
        """Make all clients resync."""
        for client in self.clients:
            client.cursor.lose("outage")
            client.wakeup.set()

    def end_all(self) -> None:
        """End all clients."""
        for client in self.clients:
            client.end()
