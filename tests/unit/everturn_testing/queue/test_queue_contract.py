"""A queue that counts other tenants' turns as one's own breaks the contract."""

from dataclasses import replace

import pytest

from everturn.core.identity import Lane
from everturn.core.ids import ConversationId
from everturn.queue.model import QueueDepth
from everturn_testing.core import FixedClock, SequentialIds
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.queue.queue import MemoryQueue
from everturn_testing.queue.queue_contract import QueueContract
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.inbox import MemoryInbox
from everturn_testing.turns.leases import MemoryLeases
from everturn_testing.turns.timelines import MemoryTimelines


class Leaky(MemoryQueue):
    async def load_depth(self, tenant: str, lane: Lane) -> QueueDepth:
        depth = await super().load_depth(tenant, lane)
        return replace(depth, of_tenant=depth.waiting)


async def nothing(*_: ConversationId | object) -> None:
    """What these tests don't need."""


async def test_a_count_over_tenants_is_noticed() -> None:
    platform = MemoryPlatform(FixedClock())
    harness = Harness(
        inbox=MemoryInbox(platform),
        leases=MemoryLeases(platform, owner="one"),
        rival=MemoryLeases(platform, owner="two"),
        timelines=MemoryTimelines(platform),
        ids=SequentialIds(),
        expire_lease=nothing,
        give_feedback=nothing,
        age_lease=nothing,
        expire_holds=nothing,
    )

    with pytest.raises(AssertionError):
        await QueueContract().test_turns_that_wait_are_counted_by_tenant_and_lane(harness, Leaky(platform))
