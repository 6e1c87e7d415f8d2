"""The presences in memory keep the contract that Redis keeps, and can be down."""

import pytest

from everturn.core.errors import Unavailable
from everturn_testing.queue.presences import MemoryPresences
from everturn_testing.queue.presences_contract import PresencesContract


class TestMemoryPresences(PresencesContract):
    @pytest.fixture
    def presences(self) -> MemoryPresences:
        return MemoryPresences()


async def test_while_down_nobody_is_told_of() -> None:
    presences = MemoryPresences()
    presences.down = True

    with pytest.raises(Unavailable):
        await presences.load_all()
