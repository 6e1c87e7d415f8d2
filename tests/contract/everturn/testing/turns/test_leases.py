"""The in-memory Leases keeps the contract that Postgres keeps."""

import pytest

from everturn_testing.turns.leases_contract import LeasesContract
from everturn_testing.turns.stage import Stage


class TestMemoryLeases(LeasesContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage
