"""The in-memory effect ledger keeps the contract that Postgres keeps."""

import pytest

from everturn.testing.contracts.effects import EffectsContract
from everturn.testing.contracts.stage import Stage
from everturn.testing.memory.effects import MemoryEffects
from everturn.testing.memory.platform import MemoryPlatform


@pytest.fixture
def ledger(memory_platform: MemoryPlatform) -> MemoryEffects:
    return MemoryEffects(memory_platform)


class TestMemoryEffects(EffectsContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage
