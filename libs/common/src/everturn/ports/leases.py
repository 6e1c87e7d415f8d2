"""Owning a conversation: claim, renew, hand back. Database time decides, never a worker's clock."""

from collections.abc import Mapping
from typing import Protocol

from everturn.model.ids import ConversationId
from everturn.model.leases import Claim, ClaimBounds, Deferred, Lease, SlotKind


class Leases(Protocol):
    """Leases of one worker process, which is named in the constructor; they last 15 s unless renewed."""

    async def try_claim(self, conversation_id: ConversationId) -> Claim | None:
        """Take the lease with the next fence. None when another worker holds it, or there is nothing to do.

        An open turn becomes RUNNING; if it was RUNNING already (its worker died) `attempt` grows by one.
        """
        ...

    async def renew(self, held: Mapping[ConversationId, int]) -> Mapping[ConversationId, int | None]:
        """Renew all leases (conversation -> fence) in one statement; gives conversation -> inbox_seq of those held.

        None in place of the inbox_seq: the lease is still held, but was not renewed, because its row was busy.
        """
        ...

    async def release(self, lease: Lease, *, requeue: bool) -> bool:
        """Hand back. With `requeue` the open turn becomes QUEUED again (drain; its attempt does not grow).

        False when the lease was lost already. Without `requeue` no turn may be running.
        """
        ...


class FairClaims(Protocol):
    """Claims of one worker within the bounds of running turns, which all workers together keep."""

    async def try_claim_fairly(
        self, conversation_id: ConversationId, bounds: ClaimBounds, slot: SlotKind
    ) -> Claim | Deferred | None:
        """As Leases.try_claim, where the queued turn may take a slot of this kind.

        For an ordinary slot: Deferred while another turn waits that is less over the bounds; nothing else is refused,
        so that no slot stays empty while a turn waits. For an extra slot: None unless `find_extra_turn` would name it.
        """
        ...

    async def find_extra_turn(self, bounds: ClaimBounds, slot: SlotKind) -> ConversationId | None:
        """The waiting turn with the best right to an extra slot: of a user below the bound, and without a running turn
        where the slot is a reserved one. The turns of one tenant on one lane may not hold more extra slots than are
        free."""
        ...
