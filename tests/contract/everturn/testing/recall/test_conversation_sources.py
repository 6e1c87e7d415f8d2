"""The in-memory Timelines keeps the contract about sources that Postgres keeps."""

import pytest

from everturn_testing.turns.conversation_sources_contract import SourcesContract
from everturn_testing.turns.stage import Stage


class TestMemorySources(SourcesContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage
