"""The history checker distinguishes an idle conversation from a lost turn, and detects a foreign event."""

import pytest
from platform_harness.invariants import check_seen, check_state

from everturn.events.model import Envelope, parse_envelope
from everturn.events.views import StateView

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
def test_a_turn_waiting_for_a_person_counts_as_idle_if_allowed(
    conversation: str, statuses: list[str], approval: str, parked: bool, rests: bool
) -> None:
    state = build(conversation, statuses, approval)

    if rests:
        check_state(state, parked=parked)
    else:
        with pytest.raises(AssertionError):
            check_state(state, parked=parked)


def tell(conversation: str) -> Envelope:
    """A snapshot of an idle conversation, as a client of this id receives it."""
    state = build("idle", ["completed"], "approved").model_dump_json()
    return parse_envelope(
        f'{{"type": "stream.snapshot", "ts": "", "conversation_id": "{conversation}", "data": {{"state": {state}}}}}'
    )


def test_an_event_of_another_conversation_is_noticed() -> None:
    state = build("idle", ["completed"], "approved")

    check_seen([tell("conv_1")], state, state)
    with pytest.raises(AssertionError):
        check_seen([tell("conv_1"), tell("conv_2")], state, state)
