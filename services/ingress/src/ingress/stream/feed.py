"""The stream of one client over SSE or a socket: ready, a snapshot or the missed events, live events, and heartbeats
during silences."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Literal

import structlog

from everturn.core.errors import NotFound, Unavailable
from everturn.core.loops import guarded
from everturn.core.metrics import STREAM_RESYNCS
from everturn.events.cursor import EventCursor, try_parse_cursor
from everturn.events.model import Ready, ServerShutdown, StreamGap
from everturn.events.stream import EventReader
from ingress.admission.connections import DirectWriter
from ingress.admission.slots import OpenSlots
from ingress.auth.callers import Caller
from ingress.auth.revocation import CallerCheck, Recheck
from ingress.errors import ProblemError, malformed
from ingress.stream.frames import HEARTBEAT, PIECE_BYTES, UNAUTHORIZED, Phase, build_batch
from ingress.stream.hub import REREADS, Hub, Subscription
from ingress.stream.steps import project_steps

_log = structlog.get_logger(__name__)

PAGE_ENTRIES = 200
CHUNK_BYTES = 65_536
RETRY_S = 1.0
FIRST_PAUSE_S = 0.125
MAX_PAUSE_S = 8.0
LARGE_SNAPSHOT_BYTES = 256 * 1024
LARGE_SNAPSHOTS, LARGE_SNAPSHOTS_OF_PERSON = 32, 8
"""How many snapshots above LARGE_SNAPSHOT_BYTES can be on their way to clients, per process and per person. Each can
have several megabytes (twice that in the view `steps`) until its client has received it or its send times out."""
SLOT_POLL_S = 0.25
"""How often a client that waits for such a slot looks for a free one."""
MIN_BYTES_PER_S = 10_000
"""The rate at which a client must read a large chunk. It bounds how long a snapshot is held in memory, and its slot: a
snapshot of 2 MB for about four minutes with the default bound of 60 s."""
RETRY_MS = (500, 3000)
"""Clients of a closing server reconnect at a random time within this range, so that they don't all reconnect at
once."""

View = Literal["native", "steps"]


class Feed:
    """Feeds the subscriptions of one hub to their clients."""

    def __init__(
        self,
        hub: Hub,
        *,
        heartbeat_s: float,
        unix_now: Callable[[], float],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._hub = hub
        self._rows = hub.rows
        self._reader: EventReader = hub.reader
        self._heartbeat_s = heartbeat_s
        self._unix_now = unix_now
        self._jitter = jitter
        self._large = OpenSlots(max_total=LARGE_SNAPSHOTS, max_per_user=LARGE_SNAPSHOTS_OF_PERSON)

    async def chunks(
        self, client: Subscription, check: CallerCheck | None = None, writer: DirectWriter | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield frames in few pieces until the server drains, the credential is no longer valid or the conversation is
        gone.

        A client is lost at first: it gets a snapshot. Then it is behind, and reads the stream to its end. Then it is
        live, and the hub offers it each entry. Whenever it misses one, it is behind or lost again.

        `check` rechecks whether the caller is still allowed; without it only the expiry counts.

        With `writer`, what arrives while the client's task waits here is written at once and not yielded, which saves
        waking a task for each client.
        """
        if writer is not None:
            client.try_send = partial(self._try_send, client, check, writer)
        yield self._build_ready(client)
        self._note_sent(client)
        while not client.ended:
            if self.has_expired(client) or (check is not None and await check.try_refusal()):
                yield UNAUTHORIZED
                return
            try:
                chunk = await self._next_chunk(client)
            except NotFound:
                return
            if chunk:
                yield chunk
                # The connection has sent the chunk. Free it now: a large one must not stay in memory while this waits
                # for the next.
                chunk = b""
                client.release_snapshot()
                self._note_sent(client)
        if self._hub.draining:
            while last := client.cursor.take():
                yield last
            yield self._build_farewell(client)

    def _try_send(self, client: Subscription, check: CallerCheck | None, writer: DirectWriter) -> bool:
        """Send what was just added to a client whose task waits. False if the task has more to do than that, or must
        wait for the connection."""
        cursor = client.cursor
        if (
            client.wakeup.is_set()
            or cursor.phase is not Phase.LIVE
            or cursor.stale_hints
            # An entry can be larger than a piece; the task sends it in parts, as fast as the client reads.
            or cursor.waiting_bytes > PIECE_BYTES
            or not writer.is_free
            or self.has_expired(client)
            or (check is not None and check.is_due)
        ):
            return False
        if piece := cursor.take():
            writer.write(piece)
            self._note_sent(client)
        if not cursor.fresh:
            client.resyncs = 0
        return True

    def _note_sent(self, client: Subscription) -> None:
        """Record that the last piece is on its way."""
        created_at = client.cursor.taken_created_at
        if created_at is not None:
            self._hub.metrics.stream_lag.observe(max(0.0, self._unix_now() - created_at))
        client.cursor.release_piece()
        client.sent_at = asyncio.get_running_loop().time()

    async def _next_chunk(self, client: Subscription) -> bytes:
        """Return the frames that are ready, read, or arrive while waiting; empty when the caller must call again."""
        cursor = client.cursor
        client.wakeup.clear()
        try:
            with guarded("stream_read", passing=(Unavailable, NotFound)) as guard:
                has_room = await self._advance(client)
                if not has_room:
                    return b"" if client.ended or self.has_expired(client) else HEARTBEAT
        except Unavailable as error:
            _log.info("Could not read the rows of a stream", error=str(error))
            return cursor.take() or await self._wait(client, min(RETRY_S, self._heartbeat_s))
        if guard.error is not None:
            # Rows that can't be read now may be readable after the next commit; until then the client keeps its state.
            return cursor.take() or await self._wait(client, min(MAX_PAUSE_S, self._heartbeat_s))
        if cursor.phase is Phase.LIVE and not cursor.fresh:
            client.resyncs = 0
        chunk = cursor.take()
        # A client that is not live has more to read, so it continues at once.
        return chunk if chunk or cursor.phase is not Phase.LIVE else await self._wait(client, self._heartbeat_s)

    async def _advance(self, client: Subscription) -> bool:
        """Bring the client closer to live, by at most one chunk. False if `_resync` found no slot."""
        cursor = client.cursor
        if cursor.phase is Phase.LOST:
            # Send the snapshot as a chunk of its own: a gap after it must not discard it.
            return await self._resync(client)
        while cursor.phase is Phase.BEHIND and cursor.waiting_bytes < CHUNK_BYTES:
            await self._catch_up(client)
        if cursor.phase is Phase.LIVE and cursor.stale_hints:
            await self._send_head(client)
        return True

    async def _wait(self, client: Subscription, pause_s: float) -> bytes:
        """Wait for frames; return a heartbeat when none arrive in time, nothing if some were sent meanwhile."""
        began = asyncio.get_running_loop().time()
        client.is_waiting = True
        try:
            async with asyncio.timeout(self._shorten_pause(client, pause_s)):
                await client.wakeup.wait()
        except TimeoutError:
            return HEARTBEAT if client.sent_at <= began else b""
        finally:
            client.is_waiting = False
        return client.cursor.take()

    def _shorten_pause(self, client: Subscription, pause_s: float) -> float:
        """The pause, or less if the client's credential expires or a heartbeat is due before its end."""
        silent_s = asyncio.get_running_loop().time() - client.sent_at
        pause_s = min(pause_s, self._heartbeat_s - silent_s)
        if client.expires_at is not None:
            pause_s = min(pause_s, client.expires_at - self._unix_now())
        return max(0.0, pause_s)

    async def _resync(self, client: Subscription) -> bool:
        """Restart the client from a snapshot. Repeated resyncs back off, because only a commit can improve the
        snapshot.

        False without a slot for a large one: the client gets a heartbeat instead, unless it has ended or its credential
        has expired.
        """
        if client.waits_for_slot:
            # Its last snapshot was large, so don't even read the next one before a slot is free.
            if not await self._wait_for_slot(client):
                return False
        elif client.resyncs:
            await asyncio.sleep(min(MAX_PAUSE_S, self._heartbeat_s, FIRST_PAUSE_S * 2**client.resyncs))
        try:
            gap = await self._build_gap(client) if client.cursor.taken is not None else b""
            snapshot = await client.stream.snapshots.get()
        except BaseException:
            client.release_snapshot()
            raise
        client.resyncs = min(client.resyncs + 1, 10)
        is_large = len(snapshot.frame) > LARGE_SNAPSHOT_BYTES
        client.waits_for_slot = is_large and not self._try_hold(client)
        if client.waits_for_slot:
            return False
        if not is_large:
            client.release_snapshot()
        self._hub.queue_positions.note(client.stream, queued=snapshot.queued)
        client.cursor.rebase(snapshot.cursor, gap + snapshot.frame)
        client.stream.note_read(client)
        if gap:
            STREAM_RESYNCS.labels(reason=client.cursor.loss).inc()
        return True

    async def _wait_for_slot(self, client: Subscription) -> bool:
        """False if the next heartbeat is due, the client ends, or its credential expires before a slot for a large
        snapshot is free."""
        clock = asyncio.get_running_loop().time
        due_s = clock() + self._shorten_pause(client, self._heartbeat_s)
        while not self._try_hold(client):
            left_s = due_s - clock()
            if left_s <= 0 or client.ended:
                return False
            await asyncio.sleep(min(SLOT_POLL_S, left_s))
        return True

    def _try_hold(self, client: Subscription) -> bool:
        if client.snapshot_slot is None:
            try:
                self._large.acquire(client.principal)
            except ProblemError:
                return False
            client.snapshot_slot = self._large
        return True

    async def _catch_up(self, client: Subscription) -> None:
        """Read a page of the missed events; a client that reaches the end of the stream becomes live."""
        stream, cursor = client.stream, client.cursor
        known = stream.cursor
        entries = await self._reader.load_after(stream.conversation_id, cursor.at, max_entries=PAGE_ENTRIES)
        for entry in entries:
            cursor.feed(build_batch(entry, stream.terminals.find_repeated_ends(entry)))
        stream.note_read(client)
        # Entries that the hub received meanwhile can be missing from this page, and a client that is BEHIND was not
        # offered them.
        if len(entries) < PAGE_ENTRIES and stream.cursor == known:
            cursor.reach_end(known, found_any=bool(entries))

    async def _send_head(self, client: Subscription) -> None:
        client.cursor.stale_hints = False
        frame = b""
        for _ in range(REREADS):
            version = client.stream.version
            try:
                head = await client.stream.heads.get()
            except Unavailable:
                client.cursor.stale_hints = True
                raise
            frame = head.frame
            self._hub.queue_positions.note(client.stream, queued=head.queued)
            if client.stream.version == version:
                break
        client.cursor.offer_hint(frame)

    async def _build_gap(self, client: Subscription) -> bytes:
        conversation_id = client.stream.conversation_id
        kept = await self._reader.load_after(conversation_id, client.cursor.at, max_entries=1)
        oldest = str(kept[0].events[0].id) if kept and kept[0].events else None
        return self._rows.build_frame(conversation_id, StreamGap(after=str(client.cursor.taken), oldest=oldest))

    def _build_ready(self, client: Subscription) -> bytes:
        cursor = str(client.start) if client.start else None
        return self._rows.build_frame(client.stream.conversation_id, Ready(cursor=cursor))

    def _build_farewell(self, client: Subscription) -> bytes:
        retry_ms = pick_retry_ms(self._jitter())
        data = ServerShutdown(retry_ms=retry_ms)
        return self._rows.build_frame(client.stream.conversation_id, data, retry_ms=retry_ms)

    def has_expired(self, client: Subscription) -> bool:
        """Whether the client's credential has expired."""
        return client.expires_at is not None and client.expires_at <= self._unix_now()


def pick_retry_ms(share: float) -> int:
    """The delay after which a client of a closing server reconnects, in milliseconds; `share` is from 0 to 1."""
    low, high = RETRY_MS
    return int(low + (high - low) * share)


class StreamEdge:
    """What all streams of a process share. Feeds a client's stream, and releases what it holds when it closes."""

    def __init__(self, *, hub: Hub, feed: Feed, slots: OpenSlots, recheck: Recheck, send_timeout_s: float) -> None:
        self.hub = hub
        self.feed = feed
        self.slots = slots
        self.recheck = recheck
        self.send_timeout_s = send_timeout_s

    def follow(
        self, client: Subscription, caller: Caller, view: View, writer: DirectWriter | None
    ) -> AsyncGenerator[bytes]:
        """The frames of a stream, for as long as its caller is allowed; some of the native ones go directly to
        `writer`."""
        check = self.recheck.begin(caller)
        if view == "steps":
            return project_steps(self.feed.chunks(client, check))
        return self.feed.chunks(client, check, writer)

    def close(self, client: Subscription) -> None:
        """Release what an open stream holds."""
        self.hub.close(client)
        self.slots.release(client.principal)


def read_cursor(text: str | None) -> EventCursor | None:
    """Parse the cursor that a client sent; None for none. Raises a 400 problem."""
    if not text:
        return None
    cursor = try_parse_cursor(text)
    if cursor is None:
        raise malformed("A cursor must be an event id, such as 3-17, or 0-0.")
    return cursor
