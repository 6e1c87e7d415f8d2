"""An in-memory harness whose parts a test may break."""

import pytest

from everturn_testing.core import FixedClock, SequentialIds
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.inbox import MemoryInbox
from everturn_testing.turns.leases import MemoryLeases
from everturn_testing.turns.timelines import MemoryTimelines


@pytest.fixture
def platform() -> MemoryPlatform:
    return MemoryPlatform(FixedClock())


@pytest.fixture
def harness(platform: MemoryPlatform) -> Harness:
    async def expire_lease(conversation_id: str) -> None:
        for row in platform.conversations.values():
            row.lease_ends_s = 0.0

    async def give_feedback(*_: object) -> None:
        """The tests that use this harness give none."""

    async def age_lease(*_: object) -> None:
        """The tests that use this harness need no old leases."""

    async def expire_holds() -> None:
        """The tests that use this harness detach no runs."""

    return Harness(
        MemoryInbox(platform),
        MemoryLeases(platform, owner="worker-1"),
        MemoryLeases(platform, owner="worker-2"),
        MemoryTimelines(platform),
        SequentialIds(),
        expire_lease,
        give_feedback,
        age_lease,
        expire_holds,
    )
