"""The in-memory Leases keeps the contract that Postgres keeps."""

import pytest

from everturn.testing.turns.leases_contract import LeasesContract
from everturn.testing.turns.stage import Stage


class TestMemoryLeases(LeasesContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage
