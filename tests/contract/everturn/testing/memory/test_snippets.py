"""The in-memory memory search keeps the contract that Postgres keeps."""

import pytest

from everturn_testing.memory.search_contract import (
    CatalogContract,
    MemoryDesk,
    MemorySearchContract,
    SnippetIndexContract,
)
from everturn_testing.memory.snippets import MemorySnippets
from everturn_testing.turns.platform import MemoryPlatform
from everturn_testing.turns.stage import Stage


class TestMemorySnippets(SnippetIndexContract, MemorySearchContract, CatalogContract):
    @pytest.fixture
    def desk(self, memory_stage: Stage, memory_platform: MemoryPlatform) -> MemoryDesk:
        snippets = MemorySnippets(memory_platform)
        return MemoryDesk(memory_stage, snippets, snippets)
