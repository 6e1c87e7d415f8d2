"""A user memory that shows all memories to everybody breaks the contract."""

import pytest

from everturn.core.identity import Principal
from everturn_testing.memory.user_memories import MemoryUserMemories
from everturn_testing.memory.user_memories_contract import UserMemoriesContract

ANN = Principal("acme", "support", "ann")


class Leaky(MemoryUserMemories):
    def _of(self, principal: Principal):
        return super()._of(ANN)


async def test_memories_that_strangers_can_read_are_noticed() -> None:
    with pytest.raises(AssertionError):
        await UserMemoriesContract().test_strangers_see_and_change_nothing(Leaky(), ANN)
