"""The hub: one reader for all conversations that clients of this process follow, the distribution of entries and hints
to those clients, and queue positions."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from everturn.core.errors import NotFound, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, SignalId
from everturn.core.loops import guarded, run_guarded
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.stream import Entry, EventReader, Hint, Hints
from everturn.queue.model import QueuePosition
from ingress.admission.slots import OpenSlots
from ingress.errors import malformed, unavailable
from ingress.metrics import IngressMetrics
from ingress.stream.frames import Batch, ClientCursor, TerminalFilter, build_batch, try_last_state
from ingress.stream.rows import Head, SharedRead, Snapshot, StreamRows

_log = structlog.get_logger(__name__)

EVERY_S: Final = 1.0
"""Seconds between two queries of the queue; there are none while no followed conversation waits."""
BATCH: Final = 100
"""Conversations per query. When more wait they rotate, and each is updated less often."""

HINT_READERS = 4
MAX_WAITING_HINTS = 10_000
MAX_BACKOFF_S = 2.0
REREADS = 3
SNAPSHOT_READS = 8
"""How many snapshots are read at once. Each holds megabytes of rows until its frame is built, in threads that share a
core, so more of them would only use memory while they wait for each other."""
FIRST_ENTRY_S = 0.25
"""How long a client waits for the first entry of a running turn before it counts as lost. A worker collects events for
30 ms; the rest is for a busy one. A stream that Redis has lost begins again with the turn's next event, which can take
minutes."""
FIRST_ENTRY_POLL_S = 0.02
FUTURE_FENCES = 16
"""How far a cursor can be ahead of every known fence; a turn is abandoned after three takeovers."""


@dataclass(slots=True, eq=False)
class Subscription:
    """One open client. The hub adds frames; the client's own task sends them, unless they can be sent at once."""

    stream: "ConversationStream"
    principal: Principal
    """Who opened the stream. Equal to the stream's principal, except for `person`, by which limits count."""
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
    is_waiting: bool = False
    """The client's task has sent everything, and waits for more."""
    try_send: Callable[[], bool] | None = None
    """Sends what was just added, while the client's task waits. False if only the task can send it."""
    sent_at: float = 0.0
    """When something was last sent, in loop time."""

    def notify(self) -> None:
        """Have what was just added sent, by the client's task unless it can be sent at once."""
        if not (self.is_waiting and self.try_send is not None and self.try_send()):
            self.wakeup.set()

    def release_snapshot(self) -> None:
        """Release the slot once the client has received its snapshot or is gone."""
        if self.snapshot_slot is not None:
            self.snapshot_slot.release(self.principal)
            self.snapshot_slot = None

    def end(self) -> None:
        """Make the client's task finish."""
        self.ended = True
        self.wakeup.set()


@dataclass(slots=True, eq=False)
class ConversationStream:
    """A conversation with at least one client. `cursor` is the id of the last event that the reader has seen."""

    conversation_id: ConversationId
    principal: Principal
    cursor: EventCursor
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
        self.cursor = batch.last
        self.version += 1
        for client in self.clients:
            client.cursor.offer(batch)
            client.notify()

    def offer_hint(self, frame: bytes, *, read_at: int) -> None:
        """Offer an event without id to all clients, from a row that was read when `reads` was `read_at`.

        A client that has read since then may have newer state than that row, so it reads the row again.
        """
        for client in self.clients:
            if client.read_number > read_at:
                client.cursor.stale_hints = True
            else:
                client.cursor.offer_hint(frame)
            client.notify()

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


class QueuePositions:
    """Publishes to waiting clients how many turns are ahead of theirs, whenever that number changes.

    Owns the set of this process's streams that wait in the queue; `run` is a task of its own.
    """

    def __init__(self, rows: StreamRows, *, every_s: float = EVERY_S) -> None:
        self._rows = rows
        self._every_s = every_s
        self._waiting: OrderedDict[ConversationId, ConversationStream] = OrderedDict()

    def note(self, stream: ConversationStream, *, queued: bool) -> None:
        """Record whether the conversation is queued, according to an event or a row. The next query corrects a stale
        row.

        A row can arrive after all clients of its stream have left; it must not replace a newer stream of the
        conversation.
        """
        if queued and stream.clients:
            self._waiting[stream.conversation_id] = stream
        else:
            self.forget(stream)

    def forget(self, stream: ConversationStream) -> None:
        """Remove a stream that has no clients any more or is no longer queued."""
        if self._waiting.get(stream.conversation_id) is stream:
            del self._waiting[stream.conversation_id]
        stream.published_position = None

    async def run(self) -> None:
        """Publish positions until cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.publish()

    async def publish(self) -> None:
        """Publish changed positions once. While the database is unavailable, clients keep the last known position."""
        batch = list(self._waiting.values())[:BATCH]
        if not batch:
            return
        known = [(stream.version, stream.reads) for stream in batch]
        try:
            found = await self._rows.load_positions([(stream.principal, stream.conversation_id) for stream in batch])
        except Unavailable as error:
            _log.info("Could not read queue positions", error=str(error))
            return
        for stream, (version, reads) in zip(batch, known, strict=True):
            waiting = found.get(stream.conversation_id)
            if stream.version != version:
                # The turn started meanwhile, or waits again: the next query handles it.
                continue
            if waiting is None:
                self.forget(stream)
                continue
            self._move_back(stream)
            if waiting.position != stream.published_position:
                stream.published_position = waiting.position
                stream.offer_hint(self._rows.build_waiting(stream.conversation_id, waiting), read_at=reads)

    def _move_back(self, stream: ConversationStream) -> None:
        if stream.conversation_id in self._waiting:
            self._waiting.move_to_end(stream.conversation_id)


class Hub:
    """Owns all streams of a process; it also implements the follow set of its reader."""

    def __init__(
        self, *, reader: EventReader, hints: Hints, rows: StreamRows, metrics: IngressMetrics, queue_bytes: int
    ) -> None:
        self.rows = rows
        self.reader = reader
        self.metrics = metrics
        self.queue_positions = QueuePositions(rows)
        self.draining = False
        self._hints = hints
        self._queue_bytes = queue_bytes
        self._streams: dict[ConversationId, ConversationStream] = {}
        self._reading = asyncio.Semaphore(SNAPSHOT_READS)
        self._added: set[ConversationId] = set()
        self._has_added = asyncio.Event()
        self._waiting_hints: asyncio.Queue[Hint] = asyncio.Queue(MAX_WAITING_HINTS)

    async def run(self) -> None:
        """Read events and hints until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(run_guarded("hub_events", self._run_follow))
            group.create_task(run_guarded("hub_hints", self._run_hints))
            group.create_task(run_guarded("hub_positions", self.queue_positions.run))
            for _ in range(HINT_READERS):
                group.create_task(run_guarded("hub_hint_rows", self._run_hint_reads))

    def drain(self) -> None:
        """Accept no more clients and end the present ones."""
        self.draining = True
        for stream in self._streams.values():
            stream.end_all()

    async def open(
        self, principal: Principal, conversation_id: ConversationId, after: EventCursor | None, expires_at: float | None
    ) -> Subscription:
        """Follow a conversation. Raises NotFound, Unavailable, and a 400 problem for a cursor that lies in the
        future."""
        if self.draining:
            raise unavailable("This server is shutting down.")
        await self.rows.check_owner(principal, conversation_id)
        last = await self.reader.load_last(conversation_id)
        known = after is None or (last is not None and after <= last)
        usable = known or await self._is_usable(principal, conversation_id, after or ORIGIN, last)
        stream = self._streams.get(conversation_id) or self._add(principal, conversation_id, last or ORIGIN)
        cursor = ClientCursor(after, max_bytes=self._queue_bytes)
        if not usable:
            cursor.lose("expired_cursor")
        client = Subscription(stream, principal, cursor, expires_at, after)
        stream.clients.add(client)
        stream.published_position = None
        self.metrics.streams.inc()
        if self.draining:
            client.end()
        return client

    async def _is_usable(
        self, principal: Principal, conversation_id: ConversationId, after: EventCursor, last: EventCursor | None
    ) -> bool:
        """Whether a client at `after`, which the stream does not reach, can continue from there without a snapshot."""
        rows = await self.rows.load_position(principal, conversation_id)
        if after == rows.cursor:
            return True
        # The stream may have begun while the rows were read. A turn that has just started commits before its first
        # entry is sent. That entry names the id before it, so a client that misses something finds the gap then.
        begun = await self._load_begun(conversation_id, wait_s=FIRST_ENTRY_S if rows.is_running and not last else 0.0)
        if begun is not None and after <= begun:
            return True
        # A Redis that was restarted or failed over may have lost events that clients already received.
        if after.fence > max(rows.cursor, last or ORIGIN).fence + FUTURE_FENCES:
            raise malformed("The cursor is ahead of the stream.")
        return False

    async def _load_begun(self, conversation_id: ConversationId, *, wait_s: float) -> EventCursor | None:
        """The last id of the stream; if there is no stream, wait this long for its first entry."""
        deadline_s = asyncio.get_running_loop().time() + wait_s
        while (last := await self.reader.load_last(conversation_id)) is None:
            if asyncio.get_running_loop().time() >= deadline_s:
                return None
            await asyncio.sleep(FIRST_ENTRY_POLL_S)
        return last

    def close(self, client: Subscription) -> None:
        """Remove a client; the last one of a conversation also removes its stream."""
        client.release_snapshot()
        client.try_send = None  # it refers to the client, which would stay in memory until the next garbage collection
        stream = client.stream
        if client not in stream.clients:
            return
        stream.clients.remove(client)
        self.metrics.streams.dec()
        if not stream.clients and self._streams.get(stream.conversation_id) is stream:
            del self._streams[stream.conversation_id]
            self.queue_positions.forget(stream)

    def cursors(self) -> dict[ConversationId, EventCursor]:
        """The reader's cursor in each conversation."""
        return {conversation_id: stream.cursor for conversation_id, stream in self._streams.items()}

    def find_cursor(self, conversation_id: ConversationId) -> EventCursor | None:
        """The reader's cursor in one conversation; None if nobody follows it."""
        stream = self._streams.get(conversation_id)
        return None if stream is None else stream.cursor

    async def changed(self) -> Collection[ConversationId]:
        """Return the conversations that were added since the last call, once there are any."""
        await self._has_added.wait()
        self._has_added.clear()
        added, self._added = self._added, set()
        return added

    def _add(self, principal: Principal, conversation_id: ConversationId, cursor: EventCursor) -> ConversationStream:
        stream = ConversationStream(
            conversation_id,
            principal,
            cursor,
            SharedRead(partial(self._load_snapshot, principal, conversation_id)),
            SharedRead(partial(self.rows.load_head, principal, conversation_id)),
        )
        self._streams[conversation_id] = stream
        self._added.add(conversation_id)
        self._has_added.set()
        return stream

    async def _load_snapshot(self, principal: Principal, conversation_id: ConversationId) -> Snapshot:
        async with self._reading:
            self.metrics.snapshots.inc()
            return await self.rows.load_snapshot(principal, conversation_id)

    async def _run_follow(self) -> None:
        while True:
            try:
                async for conversation_id, entry in self.reader.follow(self):
                    # A skipped entry leaves a gap, after which clients get a snapshot.
                    with guarded("hub_entry", conversation_id=conversation_id):
                        self._dispatch(conversation_id, entry)
            except Unavailable as error:
                _log.warning("Lost the connection to the event stream", error=str(error))
                self.metrics.redis_losses.labels(kind="events").inc()
                await self._wait_for_redis()

    def _dispatch(self, conversation_id: ConversationId, entry: Entry) -> None:
        stream = self._streams.get(conversation_id)
        if stream is None or not entry.events or entry.events[-1].id <= stream.cursor:
            return
        stream.offer(build_batch(entry, stream.terminals.find_repeated_ends(entry)))
        if (state := try_last_state(entry)) is not None:
            self.queue_positions.note(stream, queued=state == "queued")

    async def _wait_for_redis(self) -> None:
        """Wait until Redis answers again, then resync all clients, because what Redis has lost is unknown."""
        pause_s = 0.1
        while True:
            await asyncio.sleep(pause_s)
            try:
                last = await self.reader.load_last_of(tuple(self._streams))
            except Unavailable:
                pause_s = min(MAX_BACKOFF_S, pause_s * 2)
                continue
            # A stream that was added meanwhile has read its own cursor; its clients resync all the same.
            for stream in self._streams.values():
                stream.cursor = last.get(stream.conversation_id, stream.cursor)
                stream.lose_all()
            return

    async def _run_hints(self) -> None:
        pause_s = 0.1
        while True:
            try:
                async for hint in self._hints.listen(self._defer_hints):
                    pause_s = 0.1
                    self._keep_hint(hint)
            except Unavailable as error:
                _log.warning("Lost the connection to the hints", error=str(error))
                self.metrics.redis_losses.labels(kind="hints").inc()
                await asyncio.sleep(pause_s)
                pause_s = min(MAX_BACKOFF_S, pause_s * 2)

    def _defer_hints(self) -> None:
        """Make all clients reread their rows, because hints were missed while this process did not listen."""
        for stream in self._streams.values():
            stream.defer_hint()

    def _keep_hint(self, hint: Hint) -> None:
        stream = self._streams.get(hint.conversation_id)
        if stream is None:
            return
        if self._waiting_hints.full():
            stream.defer_hint()
        else:
            self._waiting_hints.put_nowait(hint)

    async def _run_hint_reads(self) -> None:
        while True:
            hint = await self._waiting_hints.get()
            stream = self._streams.get(hint.conversation_id)
            if stream is None:
                continue
            with guarded("hub_hint_row", conversation_id=hint.conversation_id) as guard:
                await self._forward_hint(stream, hint)
            if guard.error is not None:
                stream.defer_hint()

    async def _forward_hint(self, stream: ConversationStream, hint: Hint) -> None:
        try:
            await self._offer_hint(stream, hint)
        except NotFound:
            if hint.kind == "status":
                stream.end_all()
        except Unavailable as error:
            _log.warning("Could not read the row of a hint", error=str(error))
            stream.defer_hint()

    async def _offer_hint(self, stream: ConversationStream, hint: Hint) -> None:
        # An entry that arrived while the row was read may be newer than it, so the row is read again.
        for _ in range(REREADS):
            version, reads = stream.version, stream.reads
            if hint.kind == "status":
                head = await self.rows.load_status(stream.principal, stream.conversation_id)
                frame = head.frame
                self.queue_positions.note(stream, queued=head.queued)
            else:
                signal_id = SignalId(hint.signal_id)
                frame = await self.rows.load_signal(stream.principal, stream.conversation_id, signal_id)
            if stream.version == version:
                stream.offer_hint(frame, read_at=reads)
                return
        stream.defer_hint()
