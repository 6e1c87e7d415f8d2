"""The end of a turn: its terminal event, unpublished ends of earlier turns, and the release of the lease."""

import asyncio
from collections.abc import Sequence

import structlog
from pydantic import ValidationError

from chat_proc.stream.emitter import EventNumbering
from chat_proc.turn.leased import build_status_after
from chat_proc.worker.ringing import Ringer
from everturn.conversations.model import Conversation, ConversationState
from everturn.core.clock import Clock
from everturn.core.errors import Unavailable
from everturn.core.identity import lane_of
from everturn.core.ids import ConversationId, TurnId
from everturn.core.metrics import ANNOUNCEMENTS_FAILED, EVENTS_PUBLISHED
from everturn.core.retry import RetryPolicy
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.model import TERMINAL_TYPES, AnyEvent, ChatRewind, ConvStatus, ConvTitle, parse_envelope
from everturn.events.stream import EncodedEvent, Entry, EventsLost, EventWriter, StreamMemory
from everturn.events.turn_view import TurnPage, build_turn_view, try_build_terminal_event
from everturn.timeline.turns import TurnStatus
from everturn.turns.model import Claim, Lease
from everturn.turns.ports import Leases, Timelines, TurnPages

_log = structlog.get_logger(__name__)

PUBLISH_S = 5.0
"""Time limit for publishing an end before it is left to the sweeper."""
SCAN_PAGE_ENTRIES = 50
"""Stream entries per page when checking whether an end was already published: mostly it is among the last."""
MAX_READS = 3
"""Maximum reads of the stream per attempt. It is read again if it grew before the publish, because an entry that a dead
worker sent can still arrive."""
MAX_DEATHS = 3
"""Workers that can die while publishing one end. After that, clients have to read the end from the rows."""


class Announcer:
    """Works under a lease that the caller holds."""

    def __init__(
        self,
        *,
        leases: Leases,
        timelines: Timelines,
        turns: TurnPages,
        writer: EventWriter,
        ringer: Ringer,
        clock: Clock,
        retries: RetryPolicy,
        memory: StreamMemory | None = None,
        publish_s: float = PUBLISH_S,
    ) -> None:
        self._leases = leases
        self._timelines = timelines
        self._turns = turns
        self._writer = writer
        self._ringer = ringer
        self._clock = clock
        self._memory = memory
        self._publish_s = publish_s
        self._retries = retries

    async def announce_ended(self, claim: Claim, turn_id: TurnId, cursor: EventCursor) -> tuple[EventCursor, bool]:
        """Publish the state and the terminal event of a turn from its rows; the sweeper retries if that fails.

        `cursor` is the last event id issued under this fence or an earlier one; returns the new one, and whether the
        end is announced.
        """
        lease = claim.lease
        who = lease.principal
        if await self._begin(lease, turn_id) > MAX_DEATHS:
            return await self._skip_to_snapshot(claim, turn_id, cursor), True
        page = await self._retries.call(lambda: self._turns.load_page(who, lease.conversation_id, turn_ids=[turn_id]))
        cursor, sent = await self._publish_end(claim, page, turn_id, cursor)
        if sent:
            await self.mark_announced(lease, turn_id, cursor)
        else:
            # No worker died of it: it is retried however often it fails.
            ANNOUNCEMENTS_FAILED.inc()
            _log.warning("Could not publish the end of a turn", turn_id=turn_id)
            await self._retries.call(lambda: self._leases.save_announce_attempts(lease, turn_id, 0))
        return cursor, sent

    async def _publish_end(
        self, claim: Claim, page: TurnPage, turn_id: TurnId, cursor: EventCursor
    ) -> tuple[EventCursor, bool]:
        """Return the new cursor and whether all was published. Publishes nothing if it can't find out what was
        published before."""
        conversation_id = claim.lease.conversation_id
        try:
            for _ in range(MAX_READS):
                last = await self._writer.load_last(conversation_id)
                has_terminal = await self._has_terminal_event(conversation_id, turn_id)
                # A turn of many large messages takes a moment.
                prev = max(cursor, last or cursor)
                entry = await asyncio.to_thread(self._build_end, claim, page, turn_id, prev, has_terminal)
                cursor = entry.events[-1].id
                if await self._try_append(claim.lease, entry, last or ORIGIN):
                    return cursor, True
        except Unavailable as error:
            _log.warning("Could not read the end of the stream", turn_id=turn_id, error=str(error))
        return cursor, False

    async def _begin(self, lease: Lease, turn_id: TurnId) -> int:
        """Return the number of this attempt. It is saved as an absolute number, so a save that is retried counts
        once."""
        attempts = 1 + await self._retries.call(lambda: self._leases.load_announce_attempts(lease, turn_id))
        await self._retries.call(lambda: self._leases.save_announce_attempts(lease, turn_id, attempts))
        return attempts

    async def _skip_to_snapshot(self, claim: Claim, turn_id: TurnId, cursor: EventCursor) -> EventCursor:
        """Skip an event id: every client that finds the gap loads a snapshot, which contains the end.

        The end is marked as announced first, so that it is not retried even if this worker dies.
        """
        lease = claim.lease
        _log.error("Gave up announcing the end of a turn; clients load a snapshot", turn_id=turn_id, deaths=MAX_DEATHS)
        hole = EventCursor(lease.fence, cursor.n + 1 if cursor.fence == lease.fence else 1)
        if claim.turn_id is not None:
            await self.mark_announced(lease, turn_id, hole)
            return hole
        who = lease.principal
        turn = await self._retries.call(lambda: self._timelines.load_turn(who, turn_id))
        # Loaded without turns: the content of this turn's rows may be what killed the workers.
        page = await self._retries.call(lambda: self._turns.load_page(who, lease.conversation_id, turn_ids=[]))
        entry = self._number(lease, turn_id, hole, [_build_status(page.conversation, turn.status)])
        cursor = entry.events[-1].id
        await self.mark_announced(lease, turn_id, cursor)
        try:
            await self._try_append(lease, entry, None)
        except Unavailable as error:
            # A snapshot contains the state too.
            _log.warning("Could not publish the status of the conversation", turn_id=turn_id, error=str(error))
        return cursor

    def _build_end(self, claim: Claim, page: TurnPage, turn_id: TurnId, prev: EventCursor, has_terminal: bool) -> Entry:
        return self._number(claim.lease, turn_id, prev, _build_events(claim, page, has_terminal))

    def _number(self, lease: Lease, turn_id: TurnId, prev: EventCursor, events: Sequence[AnyEvent]) -> Entry:
        numbering = EventNumbering(
            self._clock, conversation_id=lease.conversation_id, turn_id=turn_id, fence=lease.fence, after=prev
        )
        return Entry(prev, tuple(numbering.begin(data).encode() for data in events))

    async def _try_append(self, lease: Lease, entry: Entry, after: EventCursor | None) -> bool:
        """Return False if the stream ends elsewhere. If the reply is lost, the same entry is sent again, but appended
        once.

        Raises StaleFence, Unavailable.
        """
        try:
            async with asyncio.timeout(self._publish_s):
                await self._retries.call(
                    lambda: self._writer.publish(lease.conversation_id, entry, after=after, owner=lease.principal)
                )
        except EventsLost:
            return False
        except TimeoutError as error:
            raise Unavailable(f"not published within {self._publish_s:g} s") from error
        EVENTS_PUBLISHED.inc(len(entry.events))
        return True

    async def _has_terminal_event(self, conversation_id: ConversationId, turn_id: TurnId) -> bool:
        """Whether the stream already has the turn's terminal event, for example because a worker died after publishing
        it but before recording that.

        Raises Unavailable.
        """
        before: EventCursor | None = None
        # The stream keeps a bounded number of entries; an end that precedes another turn lies deep in it.
        while page := await self._writer.load_newest(conversation_id, max_entries=SCAN_PAGE_ENTRIES, before=before):
            if any(_ends(event, turn_id) for entry in page for event in entry.events):
                return True
            before = page[0].events[-1].id
        return False

    async def mark_announced(self, lease: Lease, turn_id: TurnId, cursor: EventCursor) -> None:
        """Record that the end was announced to clients, and the last event id that they may have received. Raises
        StaleFence."""
        await self._retries.call(lambda: self._leases.mark_announced(lease, turn_id, cursor))
        await self._note_ended(lease, cursor)

    async def _note_ended(self, lease: Lease, cursor: EventCursor) -> None:
        """Record the end for trimming. Only once the end is saved as announced: until then, a worker that takes over
        searches the stream for it."""
        if self._memory is None:
            return
        try:
            await self._memory.note_ended(lease.conversation_id, lease.principal, cursor)
        except Unavailable as error:
            # The stream expires an hour after its last entry.
            _log.warning(
                "Could not record that the end was announced", conversation_id=lease.conversation_id, error=str(error)
            )

    async def release(self, lease: Lease, *, requeue: bool, ring_own: bool = True) -> None:
        """Release the lease. With `ring_own`, ring for what is left to do in its conversation."""
        # If the lease expired instead, the conversation would wait, and a dead worker would be counted.
        has_work = await self._retries.call(lambda: self._leases.release(lease, requeue=requeue))
        if has_work and ring_own:
            await self._ringer.ring(lane_of(lease.principal.roles), lease.conversation_id)

    async def release_announced(self, lease: Lease, turn_id: TurnId, cursor: EventCursor) -> None:
        """Record that the turn's end was published, release its lease, and ring for what is left to do in its
        conversation. Raises StaleFence."""
        has_work = await self._retries.call(lambda: self._leases.release_announced(lease, turn_id, cursor))
        await self._note_ended(lease, cursor)
        if has_work:
            await self._ringer.ring(lane_of(lease.principal.roles), lease.conversation_id)


def _build_events(claim: Claim, page: TurnPage, has_terminal: bool) -> list[AnyEvent]:
    """The state of the turn, its end unless clients have it, and the state of the conversation if no turn follows."""
    who = claim.lease.principal
    (record,) = page.turns
    view = build_turn_view(record, tenant=who.tenant, project=who.project)
    events: list[AnyEvent] = [ChatRewind(turn=view)]
    if record.turn.ordinal == 1:
        events.append(ConvTitle(title=page.conversation.title))
    if not has_terminal and (terminal := try_build_terminal_event(view)) is not None:
        events.append(terminal)
    if claim.turn_id is None:
        events.append(_build_status(page.conversation, record.turn.status))
    return events


def _build_status(conversation: Conversation, ended: TurnStatus) -> ConvStatus:
    """The conversation's status after this end: the next turn may be waiting for a person."""
    waits = conversation.state is ConversationState.WAITING
    return ConvStatus(state="waiting") if waits else build_status_after(ended)


def _ends(event: EncodedEvent, turn_id: TurnId) -> bool:
    if event.type not in TERMINAL_TYPES:
        return False
    try:
        return parse_envelope(event.payload).turn_id == turn_id
    except ValidationError:
        # A newer worker's event: an end that is published twice is better than one that is never published.
        return False
