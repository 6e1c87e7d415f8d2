"""An in-memory stage whose parts a test may break."""

import pytest

from everturn.testing.fixed_clock import FixedClock
from everturn.testing.sequential_ids import SequentialIds
from everturn.testing.turns.inbox import MemoryInbox
from everturn.testing.turns.leases import MemoryLeases
from everturn.testing.turns.platform import MemoryPlatform
from everturn.testing.turns.stage import Stage
from everturn.testing.turns.timelines import MemoryTimelines


@pytest.fixture
def platform() -> MemoryPlatform:
    return MemoryPlatform(FixedClock())


@pytest.fixture
def stage(platform: MemoryPlatform) -> Stage:
    async def expire_lease(conversation_id: str) -> None:
        for row in platform.conversations.values():
            row.lease_ends_s = 0.0

    async def give_feedback(*_: object) -> None:
        """The tests that use this stage give none."""

    async def age_lease(*_: object) -> None:
        """The tests that use this stage need no old leases."""

    return Stage(
        MemoryInbox(platform),
        MemoryLeases(platform, owner="worker-1"),
        MemoryLeases(platform, owner="worker-2"),
        MemoryTimelines(platform),
        SequentialIds(),
        expire_lease,
        give_feedback,
        age_lease,
    )
