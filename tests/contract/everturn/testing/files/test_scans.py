"""Scans in memory keep the contract."""

import pytest

from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.scans import MemoryScans
from everturn_testing.files.scans_contract import ScansContract
from everturn_testing.turns.platform import MemoryPlatform
from everturn_testing.turns.stage import Stage


class TestMemoryScans(ScansContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage

    @pytest.fixture
    def scans(self, memory_platform: MemoryPlatform) -> MemoryScans:
        return MemoryScans(memory_platform)

    @pytest.fixture
    def artifacts(self, memory_platform: MemoryPlatform) -> MemoryArtifacts:
        return MemoryArtifacts(memory_platform)
