"""The in-memory Timelines keeps the contract about sources that Postgres keeps."""

import pytest

from everturn.testing.contracts.sources import SourcesContract
from everturn.testing.contracts.stage import Stage


class TestMemorySources(SourcesContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage
