"""The in-memory Timelines keeps the contract that Postgres keeps."""

import pytest

from everturn_testing.turns.stage import Stage
from everturn_testing.turns.timelines_contract import AnnouncingContract, RecentBlocksContract, TimelinesContract


class TestMemoryTimelines(TimelinesContract, RecentBlocksContract, AnnouncingContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage
