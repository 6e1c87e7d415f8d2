"""The queue in memory keeps the contract that Postgres keeps."""

import pytest

from everturn_testing.queue.memory_queue import MemoryQueue
from everturn_testing.queue.queue_contract import QueueContract
from everturn_testing.turns.platform import MemoryPlatform
from everturn_testing.turns.stage import Stage


class TestMemoryQueue(QueueContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage

    @pytest.fixture
    def queue(self, memory_platform: MemoryPlatform) -> MemoryQueue:
        return MemoryQueue(memory_platform)
