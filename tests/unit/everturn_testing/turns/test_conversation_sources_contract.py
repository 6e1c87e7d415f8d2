"""Timelines that forget a text, or the fence, break the contract about sources."""

from dataclasses import replace

import pytest

from everturn.turns.model import Commit, Lease
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.conversation_sources_contract import SourcesContract
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.timelines import MemoryTimelines


class Fenceless(MemoryTimelines):
    async def commit(self, lease: Lease, commit: Commit) -> int:
        fence = self._platform.conversations[lease.conversation_id].fence
        return await super().commit(replace(lease, fence=fence), commit)


class Forgetful(MemoryTimelines):
    async def commit(self, lease: Lease, commit: Commit) -> int:
        emptied = tuple(replace(change, text=change.text or "") for change in commit.sources)
        return await super().commit(lease, replace(commit, sources=emptied))


async def test_timelines_that_ignore_the_fence_are_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    broken = replace(harness, timelines=Fenceless(platform))

    with pytest.raises(pytest.fail.Exception):
        await SourcesContract().test_a_stale_fence_stores_no_source(broken)


async def test_timelines_that_lose_a_text_with_a_new_title_are_noticed(
    harness: Harness, platform: MemoryPlatform
) -> None:
    broken = replace(harness, timelines=Forgetful(platform))

    with pytest.raises(AssertionError):
        await SourcesContract().test_a_changed_source_keeps_its_number_and_text(broken)
