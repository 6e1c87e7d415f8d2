"""An approval of a story is the same in its events and in REST."""

from everturn.events.model import ChatApproval
from everturn.events.turn_view import build_state
from everturn_testing.events.stories import PROJECT, TENANT
from everturn_testing.turns.asking_stories import AskingStory


def test_an_approval_is_the_same_in_events_and_in_rest() -> None:
    story = AskingStory()
    story.start_turn("Send it")
    story.start_round()
    call_id = story.add_call("mail.send", {"to": "ann"})
    approval_id = story.ask(call_id, "mail.send", {"to": "ann"})
    story.commit()
    story.show_question(call_id)

    story.settle_question(call_id, "denied", "Not today.")

    approvals = [event.data for event in story.events if isinstance(event.data, ChatApproval)]
    (read,) = build_state(story.page, tenant=TENANT, project=PROJECT).turns[0].approvals
    assert [(each.approval_id, each.state) for each in approvals] == [(approval_id, "pending"), (approval_id, "denied")]
    assert (read.state, read.reason, read.params) == ("denied", "Not today.", {"to": "ann"})
