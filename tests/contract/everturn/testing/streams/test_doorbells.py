"""The in-memory doorbells keep the contract that Redis keeps, and can be down."""

import pytest

from everturn.core.errors import Unavailable
from everturn_testing.queue.doorbells import MemoryDoorbells
from everturn_testing.queue.doorbells_contract import DoorbellsContract


class TestMemoryDoorbells(DoorbellsContract):
    @pytest.fixture
    def doorbells(self) -> MemoryDoorbells:
        return MemoryDoorbells()


async def test_while_down_a_check_says_so() -> None:
    doorbells = MemoryDoorbells()
    doorbells.down = True

    with pytest.raises(Unavailable):
        await doorbells.check(limit_s=2)
