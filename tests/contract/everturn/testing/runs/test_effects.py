"""The in-memory effect ledger keeps the contract that Postgres keeps."""

import pytest

from everturn_testing.turns.effects import MemoryEffects
from everturn_testing.turns.effects_contract import EffectsContract
from everturn_testing.turns.platform import MemoryPlatform
from everturn_testing.turns.stage import Stage


@pytest.fixture
def ledger(memory_platform: MemoryPlatform) -> MemoryEffects:
    return MemoryEffects(memory_platform)


class TestMemoryEffects(EffectsContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage
