"""Timelines that ignore the fence or the inbox break the contract."""

from dataclasses import replace

import pytest

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.timeline.blocks import Block
from everturn.turns.model import Commit, Lease
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.timelines import MemoryTimelines
from everturn_testing.turns.timelines_contract import RecentBlocksContract, TimelinesContract


class Fenceless(MemoryTimelines):
    async def commit(self, lease: Lease, commit: Commit) -> int:
        fence = self._platform.conversations[lease.conversation_id].fence
        return await super().commit(replace(lease, fence=fence), commit)


class Deaf(MemoryTimelines):
    async def commit(self, lease: Lease, commit: Commit) -> int:
        seen = self._platform.conversations[lease.conversation_id].inbox_seq
        close = commit.close and replace(commit.close, seen_inbox=seen)
        return await super().commit(lease, replace(commit, close=close))


class Forgetless(MemoryTimelines):
    async def load_recent_blocks(self, principal: Principal, conversation_id: ConversationId) -> tuple[Block, ...]:
        row = self._platform.conversations[conversation_id]
        return tuple(row.blocks)


async def test_timelines_that_ignore_the_fence_are_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    broken = replace(harness, timelines=Fenceless(platform))

    with pytest.raises(pytest.fail.Exception):
        await TimelinesContract().test_a_stale_fence_writes_nothing(broken)


async def test_timelines_that_ignore_the_inbox_are_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    broken = replace(harness, timelines=Deaf(platform))

    with pytest.raises(pytest.fail.Exception):
        await TimelinesContract().test_a_close_that_missed_a_message_writes_nothing(broken)


async def test_timelines_that_load_what_is_summarized_are_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    broken = replace(harness, timelines=Forgetless(platform))

    with pytest.raises(AssertionError):
        await RecentBlocksContract().test_a_conversation_is_loaded_from_its_last_summary_on(broken)
