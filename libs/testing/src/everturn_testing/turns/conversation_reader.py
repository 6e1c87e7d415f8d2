"""Reads blocks from the rows in memory."""

from collections.abc import Collection

from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.timeline.blocks import Block, BlockType, PlanBody
from everturn.turns.ports import BLOCK_PAGE_BYTES, BlockPage
from everturn_testing.in_memory_platform import MemoryPlatform


class MemoryConversationReader:
    """Implements ConversationReader. `reads` counts calls, for tests that expect no reading."""

    def __init__(self, platform: MemoryPlatform) -> None:
        self._platform = platform
        self.reads = 0

    async def load_turn_blocks(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        turn_id: TurnId,
        *,
        after_seq: int = 0,
        max_bytes: int = BLOCK_PAGE_BYTES,
    ) -> BlockPage:
        blocks = [block for block in self._turn(principal, conversation_id, turn_id) if block.seq > after_seq]
        page: list[Block] = []
        taken = 0
        for block in blocks:
            if taken >= max_bytes:
                break
            page.append(block)
            taken += len(block.body_json.encode())
        return BlockPage(tuple(page), more=len(page) < len(blocks))

    async def load_blocks_before(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        before_seq: int,
        kinds: Collection[BlockType],
        *,
        max_bytes: int = BLOCK_PAGE_BYTES,
    ) -> BlockPage:
        older = self._blocks(principal, conversation_id)
        blocks = [block for block in older if block.seq < before_seq and block.type in kinds]
        page: list[Block] = []
        taken = 0
        for block in reversed(blocks):
            if taken >= max_bytes:
                break
            page.insert(0, block)
            taken += len(block.body_json.encode())
        return BlockPage(tuple(page), more=len(page) < len(blocks))

    async def try_load_last_block(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        turn_id: TurnId,
        *,
        ref: str | None = None,
        kind: BlockType | None = None,
    ) -> Block | None:
        found = (
            block
            for block in reversed(self._turn(principal, conversation_id, turn_id))
            if ref in (None, block.ref) and kind in (None, block.type)
        )
        return next(found, None)

    async def try_load_plan(self, principal: Principal, conversation_id: ConversationId, plan_id: str) -> Block | None:
        found = (
            block
            for block in reversed(self._blocks(principal, conversation_id))
            if isinstance(block.body, PlanBody) and block.body.plan.plan_id == plan_id
        )
        return next(found, None)

    def _turn(self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId) -> list[Block]:
        return [block for block in self._blocks(principal, conversation_id) if block.turn_id == turn_id]

    def _blocks(self, principal: Principal, conversation_id: ConversationId) -> list[Block]:
        self.reads += 1
        try:
            return self._platform.conversation(principal, conversation_id).blocks
        except NotFound:
            return []
