"""The in-memory Artifacts keeps the contract that Postgres keeps."""

import pytest

from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.artifacts_contract import ArtifactsContract
from everturn_testing.turns.platform import MemoryPlatform
from everturn_testing.turns.stage import Stage


class TestMemoryArtifacts(ArtifactsContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage

    @pytest.fixture
    def artifacts(self, memory_platform: MemoryPlatform) -> MemoryArtifacts:
        return MemoryArtifacts(memory_platform)
