"""Readers that read too much, or for anybody, break the contract."""

import pytest

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.timeline.blocks import Block
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.conversation_reader_contract import ConversationReaderContract
from everturn_testing.turns.harness import ANN, Harness


class Greedy(MemoryConversationReader):
    def _turn(self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId) -> list[Block]:
        return self._blocks(principal, conversation_id)


class Careless(MemoryConversationReader):
    def _blocks(self, principal: Principal, conversation_id: ConversationId) -> list[Block]:
        return super()._blocks(ANN, conversation_id)


async def test_a_reader_that_mixes_turns_is_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    with pytest.raises(AssertionError):
        await ConversationReaderContract().test_only_the_blocks_of_the_turn_are_read(harness, Greedy(platform))


async def test_a_reader_that_reads_for_anybody_is_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    with pytest.raises(AssertionError):
        await ConversationReaderContract().test_blocks_of_other_owners_are_not_visible(harness, Careless(platform))
