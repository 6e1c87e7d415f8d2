"""Leases that two workers can hold, or whose fence does not grow, break the contract."""

from dataclasses import replace

import pytest

from everturn.core.ids import ConversationId
from everturn.turns.model import Claim
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.leases import MemoryLeases
from everturn_testing.turns.leases_contract import LeasesContract


class Generous(MemoryLeases):
    async def try_claim(self, conversation_id: ConversationId) -> Claim | None:
        row = self._platform.conversations[conversation_id]
        row.lease_owner = None
        return await super().try_claim(conversation_id)


class RevocationChecker(MemoryLeases):
    async def try_claim(self, conversation_id: ConversationId) -> Claim | None:
        self._platform.conversations[conversation_id].fence = 0
        return await super().try_claim(conversation_id)


async def test_leases_that_two_can_hold_are_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    broken = replace(harness, rival=Generous(platform, owner="worker-2"))

    with pytest.raises(AssertionError):
        await LeasesContract().test_a_held_lease_can_not_be_claimed(broken)


async def test_a_fence_that_does_not_grow_is_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    broken = replace(harness, rival=RevocationChecker(platform, owner="worker-2"))

    with pytest.raises(AssertionError):
        await LeasesContract().test_an_expired_lease_is_taken_over_with_the_next_fence(broken)
