"""Scans that revoke nothing break the contract."""

import pytest

from everturn_testing.core import SequentialIds
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.scans import MemoryScans
from everturn_testing.files.scans_contract import ScansContract
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.inbox import MemoryInbox
from everturn_testing.turns.leases import MemoryLeases
from everturn_testing.turns.timelines import MemoryTimelines


class Forgetful(MemoryScans):
    async def revoke(self, object_key: str) -> int:
        return 1


async def nothing(*_: object) -> None:
    """This contract asks for neither leases that end nor feedback."""


async def test_scans_that_revoke_nothing_are_noticed() -> None:
    platform = MemoryPlatform()
    lease, rival = MemoryLeases(platform, owner="worker-1"), MemoryLeases(platform, owner="worker-2")
    ports = MemoryInbox(platform), lease, rival, MemoryTimelines(platform)
    harness = Harness(*ports, SequentialIds(), nothing, nothing, nothing, nothing)

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        await ScansContract().test_a_revoked_file_can_not_be_read(
            Forgetful(platform), MemoryArtifacts(platform), harness
        )
