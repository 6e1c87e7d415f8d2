"""A driver that forgets what was removed breaks the contract."""

import pytest

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.files.model import Artifact
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.artifacts_contract import ArtifactsContract
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.harness import Harness


class Forgetful(MemoryArtifacts):
    def _rows(self, principal: Principal, conversation_id: ConversationId) -> list[Artifact]:
        return [row for row in super()._rows(principal, conversation_id) if not row.removed]


async def test_a_driver_that_forgets_what_was_removed_is_noticed(platform: MemoryPlatform, harness: Harness) -> None:
    contract = ArtifactsContract()

    with pytest.raises(AssertionError):
        await contract.test_a_removed_ref_is_not_listed_but_still_found(Forgetful(platform), harness)
