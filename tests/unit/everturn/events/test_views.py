"""What a client sees, as JSON."""

import pytest
from pydantic import ValidationError

from everturn.conversations.model import ConversationView
from everturn.events.views import FeedbackView, StateView, TurnView

CONVERSATION = ConversationView(conversation_id="conv_1", title="", state="idle", created_at="", last_activity_at="")


def test_a_state_reads_back_from_json_with_absent_fields_left_out() -> None:
    turn = TurnView(
        turn_id="turn_1", ordinal=1, status="queued", text="Hi", feedback=(FeedbackView(origin="user", text="", ts=""),)
    )
    state = StateView(conversation=CONVERSATION, turns=(turn,), cursor="0-0")

    read = StateView.model_validate_json(state.model_dump_json(exclude_none=True))

    assert read == state


def test_a_view_has_no_unknown_fields_and_does_not_change() -> None:
    with pytest.raises(ValidationError):
        ConversationView.model_validate({**CONVERSATION.model_dump(), "owner": "x"})
    with pytest.raises(ValidationError):
        CONVERSATION.title = "x"  # type: ignore[misc]
