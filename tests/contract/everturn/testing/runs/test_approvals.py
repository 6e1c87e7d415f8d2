"""The in-memory Approvals keeps the contract that Postgres keeps."""

import pytest

from everturn.turns.approvals import ApprovalState
from everturn.turns.ports import Approvals
from everturn_testing.turns.approvals import MemoryApprovals, expire_approvals
from everturn_testing.turns.approvals_contract import OVER_S, AnswersContract, ApprovalsContract, ask, states_of
from everturn_testing.turns.platform import MemoryPlatform
from everturn_testing.turns.stage import Stage


@pytest.fixture
def approvals(memory_platform: MemoryPlatform) -> Approvals:
    return MemoryApprovals(memory_platform, owner="worker-1")


class TestMemoryApprovals(ApprovalsContract, AnswersContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage


async def test_a_wait_whose_time_is_up_ends(
    memory_stage: Stage, approvals: Approvals, memory_platform: MemoryPlatform
) -> None:
    claim = await memory_stage.start_turn()
    await ask(memory_stage, approvals, claim, timeout_s=OVER_S)
    await approvals.try_park(claim.lease)

    assert expire_approvals(memory_platform) == (claim.lease.conversation_id,)

    assert await states_of(memory_stage, approvals, claim) == [ApprovalState.EXPIRED]
    assert await memory_stage.rival.try_claim(claim.lease.conversation_id) is not None
