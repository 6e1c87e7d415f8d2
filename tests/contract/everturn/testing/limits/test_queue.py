"""The queue in memory keeps the contract that Postgres keeps."""

import pytest

from everturn.testing.contracts.stage import Stage
from everturn.testing.limits.queue import MemoryQueue
from everturn.testing.limits.queue_contract import QueueContract
from everturn.testing.memory.platform import MemoryPlatform


class TestMemoryQueue(QueueContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage

    @pytest.fixture
    def queue(self, memory_platform: MemoryPlatform) -> MemoryQueue:
        return MemoryQueue(memory_platform)
