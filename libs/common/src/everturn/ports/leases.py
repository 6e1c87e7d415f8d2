"""Owning a conversation: claim, renew, hand back. Database time decides, never a worker's clock."""

from collections.abc import Mapping
from typing import Protocol

from everturn.model.ids import ConversationId
from everturn.model.leases import Claim, Lease


class Leases(Protocol):
    """Leases of one worker process, which is named in the constructor; they last 15 s unless renewed."""

    async def try_claim(self, conversation_id: ConversationId) -> Claim | None:
        """Take the lease with the next fence. None when another worker holds it, or there is nothing to do.

        An open turn becomes RUNNING; if it was RUNNING already (its worker died) `attempt` grows by one.
        """
        ...

    async def renew(self, held: Mapping[ConversationId, int]) -> Mapping[ConversationId, int]:
        """Renew all leases (conversation -> fence) in one statement; gives conversation -> inbox_seq of those held."""
        ...

    async def release(self, lease: Lease, *, requeue: bool) -> bool:
        """Hand back. With `requeue` the open turn becomes QUEUED again (drain; its attempt does not grow).

        False when the lease was lost already. Without `requeue` no turn may be running.
        """
        ...
