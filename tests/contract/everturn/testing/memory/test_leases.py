"""The in-memory Leases keeps the contract that Postgres keeps."""

import pytest

from everturn.testing.contracts.leases import LeasesContract
from everturn.testing.contracts.stage import Stage


class TestMemoryLeases(LeasesContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage
