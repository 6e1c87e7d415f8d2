"""A scenario in which the worker asks a person before it makes a call."""

from datetime import timedelta
from typing import Any, Literal

from everturn.core.clock import iso
from everturn.core.ids import ApprovalId, CallId
from everturn.events.turn_view import build_approval_event
from everturn.timeline.blocks import ApprovalOutcomeBody, ApprovalRequestBody
from everturn.turns.model import approval_id_of, hash_arguments
from everturn_testing.events.scenarios import BEGINNING, Scenario

Settled = Literal["approved", "denied", "expired", "withdrawn"]


class ApprovalScenario(Scenario):
    """Questions and their outcomes."""

    def ask(self, call_id: CallId, tool_id: str, params: dict[str, Any]) -> ApprovalId:
        """Ask a person about a call; the question is committed with the decision."""
        body = ApprovalRequestBody(
            approval_id=approval_id_of(call_id),
            tool_id=tool_id,
            params=params,
            args_hash=hash_arguments(tool_id, params),
            expires_at=iso(BEGINNING + timedelta(days=1)),
        )
        self.add(body, call_id=call_id)
        return body.approval_id

    def settle_question(self, call_id: CallId, state: Settled, reason: str = "") -> None:
        """Commit and publish the outcome of a question."""
        body = ApprovalOutcomeBody(approval_id=approval_id_of(call_id), state=state, reason=reason)
        self.add(body, call_id=call_id)
        self.commit()
        self.show_question(call_id)

    def show_question(self, call_id: CallId) -> None:
        """Publish a question in its committed state."""
        self.emit(build_approval_event(next(each for each in self._view().approvals if each.call_id == call_id)))
