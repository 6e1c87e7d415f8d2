"""The history checker knows rest from a turn that got lost, also where a turn waits for a person."""

import pytest
from stages.history import check_state

from everturn.wire.views import StateView

STATES = [
    ("idle", ["completed"], "approved", False, True),
    ("idle", ["running"], "approved", False, False),
    ("waiting", ["completed", "waiting"], "pending", False, False),
    ("waiting", ["completed", "waiting"], "pending", True, True),
    ("waiting", ["completed", "waiting"], "approved", True, False),
    ("waiting", ["running", "waiting"], "pending", True, False),
    ("waiting", ["waiting", "completed"], "pending", True, False),
    ("running", ["completed", "running"], "pending", True, False),
    ("idle", ["completed"], "approved", True, False),
]

ASKED = {"approval_id": "a", "call_id": "c", "tool_id": "mail.send", "params": {}, "round": 1, "expires_at": ""}


def build(conversation: str, statuses: list[str], approval: str) -> StateView:
    """Turns of these statuses; the last one has asked a person."""
    turns = [
        {
            "turn_id": f"turn_{n}",
            "ordinal": n,
            "status": status,
            "text": "",
            "approvals": [{**ASKED, "state": approval}],
        }
        for n, status in enumerate(statuses, start=1)
    ]
    about = {"conversation_id": "conv_1", "title": "", "state": conversation, "created_at": "", "last_activity_at": ""}
    return StateView.model_validate({"conversation": about, "turns": turns, "cursor": "0-0"})


@pytest.mark.parametrize(("conversation", "statuses", "approval", "parked", "rests"), STATES)
def test_a_turn_that_waits_for_a_person_is_rest_where_that_is_said_and_hides_no_lost_turn(
    conversation: str, statuses: list[str], approval: str, parked: bool, rests: bool
) -> None:
    state = build(conversation, statuses, approval)

    if rests:
        check_state(state, parked=parked)
    else:
        with pytest.raises(AssertionError):
            check_state(state, parked=parked)
