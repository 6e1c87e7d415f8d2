"""The in-memory Timelines keeps the contract that Postgres keeps."""

import pytest

from everturn.testing.contracts.stage import Stage
from everturn.testing.contracts.timelines import TimelinesContract


class TestMemoryTimelines(TimelinesContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage
