"""A memory search that looks beyond its principal, or an index that forgets, breaks the contract."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from everturn.core.identity import Principal
from everturn.memory.search import EmbeddedSnippet, FoundSnippet, IndexJob, SnippetQuery
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.memory.search_contract import MemoryDesk, MemorySearchContract, SnippetIndexContract
from everturn_testing.memory.snippets import MemorySnippets
from everturn_testing.turns.harness import Harness


class Boundless(MemorySnippets):
    async def find_snippets(self, principal: Principal, query: SnippetQuery) -> tuple[FoundSnippet, ...]:
        return await super().find_snippets(Principal("acme", "support", "ann"), query)


class Forgetful(MemorySnippets):
    async def save_snippets(
        self, principal: Principal, job: IndexJob, snippets: Sequence[EmbeddedSnippet], *, encoder: str
    ) -> bool:
        saved = await super().save_snippets(principal, job, snippets, encoder=encoder)
        self._indexed.clear()
        self._due.clear()
        return saved


async def test_a_search_that_shows_a_stranger_something_is_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    broken = Boundless(platform)

    with pytest.raises(AssertionError):
        await MemorySearchContract().test_strangers_find_nothing(MemoryDesk(harness, broken, broken))


async def test_an_index_that_claims_a_turn_again_is_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    broken = Forgetful(platform)
    desk = replace(MemoryDesk(harness, broken, broken))

    with pytest.raises(AssertionError):
        await SnippetIndexContract().test_a_turn_without_snippets_is_marked_as_indexed(desk)
