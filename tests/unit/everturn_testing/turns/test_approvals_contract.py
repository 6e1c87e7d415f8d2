"""A driver that parks whatever it is asked to breaks the contract."""

import pytest

from everturn.turns.model import Lease
from everturn_testing.core import FixedClock, SequentialIds
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.approvals import MemoryApprovals
from everturn_testing.turns.approvals_contract import ApprovalsContract
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.inbox import MemoryInbox
from everturn_testing.turns.leases import MemoryLeases
from everturn_testing.turns.timelines import MemoryTimelines


class Hasty(MemoryApprovals):
    async def try_park(self, lease: Lease) -> bool:
        await super().try_park(lease)
        return True


async def test_a_driver_that_parks_without_a_reason_is_noticed() -> None:
    platform = MemoryPlatform(FixedClock())

    async def nothing(*_: object) -> None:
        """No lease expires and nobody judges here."""

    leases = MemoryLeases(platform, owner="worker-1")
    harness = Harness(
        inbox=MemoryInbox(platform),
        leases=leases,
        rival=leases,
        timelines=MemoryTimelines(platform),
        ids=SequentialIds(),
        expire_lease=nothing,
        give_feedback=nothing,
        age_lease=nothing,
        expire_holds=nothing,
    )

    with pytest.raises(AssertionError):
        await ApprovalsContract().test_a_turn_without_a_pending_approval_is_not_parked(harness, Hasty(platform))
