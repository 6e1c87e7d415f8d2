"""The state of a conversation as REST reads it and as a stream begins with it."""

from dataclasses import dataclass

from everturn.model.conversations import Conversation
from everturn.model.ids import TurnId
from everturn.model.leases import EventCursor
from everturn.timeline.turn_view import TurnRecord, build_turn_view
from everturn.wire.times import iso
from everturn.wire.views import ConversationView, StateView


@dataclass(frozen=True, slots=True)
class TurnPage:
    """Turns oldest first, all read in one snapshot together with `cursor`, the event id they include.

    `next_cursor` goes on to older turns, None when there are none. `open_turn_id` is the one that has not ended, also
    where it is not on the page.
    """

    conversation: Conversation
    turns: tuple[TurnRecord, ...]
    cursor: EventCursor
    next_cursor: str | None
    open_turn_id: TurnId | None = None


def build_state(page: TurnPage, *, tenant: str, project: str) -> StateView:
    """The page's turns as clients see them; tenant and project go into the files' addresses."""
    return StateView(
        conversation=build_conversation_view(page.conversation),
        turns=tuple(build_turn_view(record, tenant=tenant, project=project) for record in page.turns),
        cursor=str(page.cursor),
        next_cursor=page.next_cursor,
    )


def build_conversation_view(conversation: Conversation) -> ConversationView:
    """One conversation row as clients see it."""
    return ConversationView(
        conversation_id=conversation.id,
        title=conversation.title,
        state=conversation.state.value,
        bundle_id=conversation.bundle_id,
        archived=conversation.archived,
        created_at=iso(conversation.created_at),
        last_activity_at=iso(conversation.last_activity_at),
    )
