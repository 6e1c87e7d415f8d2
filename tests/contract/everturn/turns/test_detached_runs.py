"""Detached runs in memory and in Postgres keep one contract. In Postgres no wake-up is lost; erasure reaches them."""

import asyncio

import pytest

from everturn.conversations.postgres import PostgresConversations
from everturn.lifecycle.postgres_erasure import PostgresObjectRows
from everturn.timeline.turns import TurnStatus
from everturn.turns.detached import DetachedRuns
from everturn.turns.ports import Approvals
from everturn.turns.postgres_approvals import PostgresApprovals
from everturn.turns.postgres_detached import PostgresDetachedRuns
from everturn_testing.database_roles import Roles
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.approvals import MemoryApprovals
from everturn_testing.turns.approvals_contract import status_of
from everturn_testing.turns.detached import MemoryDetachedRuns
from everturn_testing.turns.detached_contract import ENGINES, DetachedRunsContract, build_start
from everturn_testing.turns.harness import ANN, Harness


@pytest.fixture(autouse=True)
async def no_other_runs(roles: Roles) -> None:
    """Those of other tests count for the person, too."""
    await roles.superuser.execute("DELETE FROM detached_run")


@pytest.fixture
def approvals(roles: Roles) -> Approvals:
    return PostgresApprovals(roles.worker)


@pytest.fixture
def runs(roles: Roles) -> DetachedRuns:
    return PostgresDetachedRuns(roles.worker, owner="worker-1")


@pytest.fixture
def others(roles: Roles) -> DetachedRuns:
    return PostgresDetachedRuns(roles.worker, owner="worker-2")


class TestPostgresDetachedRuns(DetachedRunsContract):
    @pytest.fixture
    def harness(self, postgres_harness: Harness) -> Harness:
        return postgres_harness


async def test_an_end_during_parking_wakes_the_turn(
    postgres_harness: Harness, approvals: Approvals, runs: DetachedRuns
) -> None:
    for _ in range(20):
        claim = await postgres_harness.start_turn()
        start = build_start(claim)
        await runs.save_start(claim.lease, start)

        parked, ring = await asyncio.gather(approvals.try_park(claim.lease), runs.end(start.run_id, "finished"))

        assert parked is (ring is not None)
        expected = TurnStatus.QUEUED if parked else TurnStatus.RUNNING
        assert await status_of(postgres_harness, claim) is expected


async def test_workers_share_the_runs_of_one_that_died(
    postgres_harness: Harness, runs: DetachedRuns, roles: Roles
) -> None:
    claim = await postgres_harness.start_turn()
    starts = [build_start(claim, f"call_{n}") for n in range(8)]
    for start in starts:
        await runs.save_start(claim.lease, start)
    await postgres_harness.expire_holds()
    heirs = [PostgresDetachedRuns(roles.worker, owner=f"heir-{n}") for n in range(4)]

    held = await asyncio.gather(*(heir.hold(ENGINES) for heir in heirs))

    found = [run.run_id for each in held for run in each if run.run_id in {start.run_id for start in starts}]
    assert sorted(found) == sorted(start.run_id for start in starts)


@pytest.mark.parametrize("parked", [True, False])
async def test_the_conversation_is_shown_as_running(
    postgres_harness: Harness, approvals: Approvals, runs: DetachedRuns, roles: Roles, *, parked: bool
) -> None:
    claim = await postgres_harness.start_turn()
    await runs.save_start(claim.lease, build_start(claim))
    assert not parked or await approvals.try_park(claim.lease)

    conversation = await PostgresConversations(roles.ingress).load(ANN, claim.lease.conversation_id)

    assert conversation.state.value == "running"


async def test_a_stored_result_is_no_orphan_while_its_run_has_a_row(
    postgres_harness: Harness, runs: DetachedRuns, roles: Roles
) -> None:
    claim = await postgres_harness.start_turn()
    start, key = build_start(claim), f"{claim.lease.conversation_id}/{'0' * 64}"
    await runs.save_start(claim.lease, start)
    await runs.end(start.run_id, "finished", key)
    await postgres_harness.leases.release(claim.lease, requeue=True)

    assert await PostgresObjectRows(roles.worker).load_orphans([key]) == ()
    await runs.remove(start.run_id)
    assert await PostgresObjectRows(roles.worker).load_orphans([key]) == (key,)


async def test_an_erasure_takes_the_runs_too(postgres_harness: Harness, runs: DetachedRuns, roles: Roles) -> None:
    claim = await postgres_harness.start_turn()
    start = build_start(claim)
    await runs.save_start(claim.lease, start)

    erasure = await PostgresConversations(roles.ingress).erase(ANN, claim.lease.conversation_id)

    assert erasure.rows["detached_run"] == 1
    assert await runs.end(start.run_id, "finished") is None


class TestMemoryDetachedRuns(DetachedRunsContract):
    @pytest.fixture
    def approvals(self, memory_platform: MemoryPlatform) -> Approvals:
        return MemoryApprovals(memory_platform, owner="worker-1")

    @pytest.fixture
    def runs(self, memory_platform: MemoryPlatform) -> DetachedRuns:
        return MemoryDetachedRuns(memory_platform, owner="worker-1")

    @pytest.fixture
    def others(self, memory_platform: MemoryPlatform) -> DetachedRuns:
        return MemoryDetachedRuns(memory_platform, owner="worker-2")

    @pytest.fixture
    def harness(self, memory_harness: Harness) -> Harness:
        return memory_harness
