"""Waiting for a person: what a lease holder asks of the rows of approvals, and how its turn is parked."""

from datetime import datetime
from typing import Protocol

from everturn.model.calls.approvals import Approval
from everturn.model.identity import Principal
from everturn.model.ids import TurnId
from everturn.model.leases import Lease


class Approvals(Protocol):
    """Rows are written by Timelines.commit (questions) and Inbox.accept_signal (answers); Sweeps lets them expire."""

    async def load_deadline(self, *, timeout_s: float) -> datetime:
        """When a question of now expires, by the database's clock."""
        ...

    async def load_of_turn(self, principal: Principal, turn_id: TurnId) -> tuple[Approval, ...]:
        """All that were asked in the turn, oldest first."""
        ...

    async def try_park(self, lease: Lease) -> bool:
        """Hand the lease back and let the running turn wait, with no attempt counted against it.

        False, and the lease is as before, when it was lost, when nothing is pending, or when an answer, a steer or a
        cancel is there that no commit has told of: the turn has to look first. What is said later wakes it.
        After Unavailable it may be tried again: a turn that waits since then gives True once more.
        """
        ...
