"""The in-memory memory search keeps the contract that Postgres keeps."""

import pytest

from everturn.testing.contracts.memory_search import (
    CatalogContract,
    MemoryDesk,
    MemorySearchContract,
    SnippetIndexContract,
)
from everturn.testing.contracts.stage import Stage
from everturn.testing.memory.platform import MemoryPlatform
from everturn.testing.memory.snippets import MemorySnippets


class TestMemorySnippets(SnippetIndexContract, MemorySearchContract, CatalogContract):
    @pytest.fixture
    def desk(self, memory_stage: Stage, memory_platform: MemoryPlatform) -> MemoryDesk:
        snippets = MemorySnippets(memory_platform)
        return MemoryDesk(memory_stage, snippets, snippets)
