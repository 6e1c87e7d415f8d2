"""Reading back blocks that a worker has not in memory: of older turns, and of the person's other conversations."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from everturn.model.blocks import Block, BlockType
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId

PAGE_BYTES = 2 * 1024 * 1024
"""Of the stored bodies of one page; the last block of a page may go beyond."""


@dataclass(frozen=True, slots=True)
class BlockPage:
    """Blocks of a turn, in order. `more` says whether the turn has later ones."""

    blocks: tuple[Block, ...]
    more: bool


class ConversationReader(Protocol):
    """All calls see only the principal's own conversations; another's is as if it had no blocks."""

    async def load_turn_blocks(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        turn_id: TurnId,
        *,
        after_seq: int = 0,
        max_bytes: int = PAGE_BYTES,
    ) -> BlockPage:
        """The turn's blocks with a larger `seq`, until their bodies have `max_bytes` bytes together; at least one."""
        ...

    async def load_blocks_before(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        before_seq: int,
        kinds: Collection[BlockType],
        *,
        max_bytes: int = PAGE_BYTES,
    ) -> BlockPage:
        """The conversation's blocks of these types with a smaller `seq`, in order: the newest that have `max_bytes`
        bytes together. `more` says whether there are older ones."""
        ...

    async def try_load_last_block(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        turn_id: TurnId,
        *,
        ref: str | None = None,
        kind: BlockType | None = None,
    ) -> Block | None:
        """The turn's last block with this ref and of this type; None stands for any."""
        ...

    async def try_load_plan(self, principal: Principal, conversation_id: ConversationId, plan_id: str) -> Block | None:
        """The `react.plan` block with the newest snapshot of a plan."""
        ...
