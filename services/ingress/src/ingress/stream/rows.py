"""What a stream needs from the rows: snapshots, and the events of hints."""

from dataclasses import dataclass

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, SignalId
from everturn.model.leases import ORIGIN, EventCursor
from everturn.model.turns import TurnStatus
from everturn.ports.clock import Clock, iso
from everturn.ports.conversations import Conversations
from everturn.ports.inbox import Inbox
from everturn.ports.turns import TurnPage, Turns
from everturn.timeline.conversation_state import build_state
from everturn.timeline.turn_events import build_signal_event
from everturn.timeline.view_parts import build_signal_view
from everturn.wire.events import AnyEvent, ConvStatus, ConvTitle, StreamSnapshot
from ingress.stream.frames import build_frame

SNAPSHOT_TURNS = 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A conversation's state as one frame, and the event id it includes."""

    cursor: EventCursor
    frame: bytes


class StreamRows:
    """Reads rows for streams; every read names the principal."""

    def __init__(self, *, conversations: Conversations, turns: Turns, inbox: Inbox, clock: Clock) -> None:
        self._conversations = conversations
        self._turns = turns
        self._inbox = inbox
        self._clock = clock

    async def check_owner(self, principal: Principal, conversation_id: ConversationId) -> None:
        """Raise NotFound unless the conversation is the principal's."""
        await self._conversations.load(principal, conversation_id)

    async def load_cursor(self, principal: Principal, conversation_id: ConversationId) -> EventCursor:
        """The event id that the rows include."""
        return (await self._turns.load_page(principal, conversation_id, limit=1)).cursor

    async def load_snapshot(self, principal: Principal, conversation_id: ConversationId) -> Snapshot:
        """The last turns as a frame, from which a client that reconnects can resume."""
        page = await self._turns.load_page(principal, conversation_id, limit=SNAPSHOT_TURNS)
        state = build_state(page, tenant=principal.tenant, project=principal.project)
        # `0-0` would mean the oldest event kept, which may be younger than this state.
        cursor = str(page.cursor) if page.cursor != ORIGIN else None
        return Snapshot(page.cursor, self.build_frame(conversation_id, StreamSnapshot(state=state), cursor=cursor))

    async def load_status(self, principal: Principal, conversation_id: ConversationId) -> bytes:
        """The present title and state as events without id."""
        page = await self._turns.load_page(principal, conversation_id, limit=1)
        return self._build_status(conversation_id, page)

    async def load_head(self, principal: Principal, conversation_id: ConversationId) -> bytes:
        """Title, state and the receipts of the last turn: all that hints may have told while nobody listened."""
        page = await self._turns.load_page(principal, conversation_id, limit=1)
        frames = [self._build_status(conversation_id, page)]
        for record in page.turns:
            for signal in record.signals:
                view = build_signal_view(signal, tenant=principal.tenant, project=principal.project)
                frames.append(self.build_frame(conversation_id, build_signal_event(view), turn_id=signal.turn_id))
        return b"".join(frames)

    async def load_signal(self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId) -> bytes:
        """A signal's present receipt as an event without id."""
        signal = await self._inbox.load_signal(principal, conversation_id, signal_id)
        view = build_signal_view(signal, tenant=principal.tenant, project=principal.project)
        return self.build_frame(conversation_id, build_signal_event(view), turn_id=signal.turn_id)

    def build_frame(
        self,
        conversation_id: ConversationId,
        data: AnyEvent,
        *,
        turn_id: str | None = None,
        cursor: str | None = None,
        retry_ms: int | None = None,
    ) -> bytes:
        """A frame of this server's own, as of now."""
        ts = iso(self._clock.now())
        return build_frame(
            data, conversation_id=conversation_id, ts=ts, turn_id=turn_id, cursor=cursor, retry_ms=retry_ms
        )

    def _build_status(self, conversation_id: ConversationId, page: TurnPage) -> bytes:
        conversation = page.conversation
        last = page.turns[-1].turn if page.turns else None
        turn_id = last.id if last and last.status in (TurnStatus.QUEUED, TurnStatus.RUNNING) else None
        status = self.build_frame(conversation_id, ConvStatus(state=conversation.state.value, turn_id=turn_id))
        if not conversation.title:
            return status
        return self.build_frame(conversation_id, ConvTitle(title=conversation.title)) + status
