"""The in-memory Timelines keeps the contract that Postgres keeps."""

import pytest

from everturn.testing.turns.stage import Stage
from everturn.testing.turns.timelines_contract import RecentBlocksContract, TimelinesContract


class TestMemoryTimelines(TimelinesContract, RecentBlocksContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage
