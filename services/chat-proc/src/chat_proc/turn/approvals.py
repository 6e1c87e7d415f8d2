"""The rows of a turn's questions as its loop asks for them: a restart of the database costs the turn only time."""

from datetime import datetime

from chat_proc.agent.open_turn import TurnApprovals
from chat_proc.turn.patience import Patience
from everturn.model.calls.approvals import Approval
from everturn.model.identity import Principal
from everturn.model.ids import TurnId


class PatientApprovals:
    """Implements TurnApprovals over another one, which it asks again while the database does not answer."""

    def __init__(self, approvals: TurnApprovals, patience: Patience) -> None:
        self._approvals = approvals
        self._patience = patience

    async def load_deadline(self, *, timeout_s: float) -> datetime:
        return await self._patience.call(lambda: self._approvals.load_deadline(timeout_s=timeout_s))

    async def load_of_turn(self, principal: Principal, turn_id: TurnId) -> tuple[Approval, ...]:
        return await self._patience.call(lambda: self._approvals.load_of_turn(principal, turn_id))
