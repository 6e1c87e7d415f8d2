"""The in-memory Artifacts keeps the contract that Postgres keeps."""

import pytest

from everturn.testing.contracts.artifacts import ArtifactsContract
from everturn.testing.contracts.stage import Stage
from everturn.testing.memory.artifacts import MemoryArtifacts
from everturn.testing.memory.platform import MemoryPlatform


class TestMemoryArtifacts(ArtifactsContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage

    @pytest.fixture
    def artifacts(self, memory_platform: MemoryPlatform) -> MemoryArtifacts:
        return MemoryArtifacts(memory_platform)
