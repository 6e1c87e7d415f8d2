"""An approval of a scenario is the same in its events and in REST."""

from everturn.events.model import ChatApproval
from everturn.events.turn_view import build_state
from everturn_testing.events.scenarios import PROJECT, TENANT
from everturn_testing.turns.approval_scenarios import ApprovalScenario


def test_an_approval_is_the_same_in_events_and_in_rest() -> None:
    scenario = ApprovalScenario()
    scenario.start_turn("Send it")
    scenario.start_round()
    call_id = scenario.add_call("mail.send", {"to": "ann"})
    approval_id = scenario.ask(call_id, "mail.send", {"to": "ann"})
    scenario.commit()
    scenario.show_question(call_id)

    scenario.settle_question(call_id, "denied", "Not today.")

    approvals = [event.data for event in scenario.events if isinstance(event.data, ChatApproval)]
    (read,) = build_state(scenario.page, tenant=TENANT, project=PROJECT).turns[0].approvals
    assert [(each.approval_id, each.state) for each in approvals] == [(approval_id, "pending"), (approval_id, "denied")]
    assert (read.state, read.reason, read.params) == ("denied", "Not today.", {"to": "ann"})
