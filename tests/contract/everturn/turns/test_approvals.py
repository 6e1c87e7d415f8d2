"""Approvals in memory and in Postgres keep one contract; the sweep in Postgres ends waits after their deadline."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from everturn.core.errors import Conflict
from everturn.core.identity import Lane
from everturn.timeline.turns import SignalKind, TurnStatus
from everturn.turns.inbox import Receipt
from everturn.turns.model import ApprovalState
from everturn.turns.ports import Approvals, Ring
from everturn.turns.postgres_approvals import PostgresApprovals
from everturn.turns.postgres_leases import PostgresSweeps
from everturn_testing.database_roles import Roles
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.approvals import MemoryApprovals, expire_approvals
from everturn_testing.turns.approvals_contract import (
    LONG_S,
    OVER_S,
    AnswersContract,
    ApprovalsContract,
    answer,
    ask,
    states_of,
    status_of,
)
from everturn_testing.turns.harness import Harness, closing


@pytest.fixture
def approvals(roles: Roles) -> Approvals:
    return PostgresApprovals(roles.worker)


class TestPostgresApprovals(ApprovalsContract, AnswersContract):
    @pytest.fixture
    def harness(self, postgres_harness: Harness) -> Harness:
        return postgres_harness


@pytest.fixture
async def alone(postgres_harness: Harness, roles: Roles) -> AsyncIterator[Harness]:
    """The tables have no turns of other tests."""
    await roles.superuser.execute("TRUNCATE conversation CASCADE")
    yield postgres_harness


async def test_a_parked_turn_counts_neither_as_dead_nor_as_load(
    alone: Harness, approvals: Approvals, roles: Roles
) -> None:
    claim = await alone.start_turn()
    await ask(alone, approvals, claim, timeout_s=LONG_S)
    await approvals.try_park(claim.lease)

    await roles.superuser.execute("UPDATE turn SET doorbell_at = now() - interval '1 day'")

    assert await PostgresSweeps(roles.worker).claim_due_doorbells(takeovers=True) == ()
    assert await roles.superuser.fetchval("SELECT waiting FROM queue_depth('acme', 'paid')") == 0


async def test_an_expired_wait_ends_and_is_rung_at_once(alone: Harness, approvals: Approvals, roles: Roles) -> None:
    claim = await alone.start_turn()
    await ask(alone, approvals, claim, timeout_s=OVER_S)
    await ask(alone, approvals, claim, timeout_s=LONG_S)
    await approvals.try_park(claim.lease)

    rings = await PostgresSweeps(roles.worker).claim_due_doorbells(takeovers=False)

    assert rings == (Ring(claim.lease.conversation_id, Lane.PAID),)
    assert await states_of(alone, approvals, claim) == [ApprovalState.EXPIRED, ApprovalState.PENDING]
    assert (await alone.claim(claim.lease.conversation_id)).attempt == 0


async def test_a_question_of_a_running_turn_expires_only_once_that_is_parked(
    alone: Harness, approvals: Approvals, roles: Roles
) -> None:
    claim = await alone.start_turn()
    await ask(alone, approvals, claim, timeout_s=OVER_S)
    sweeps = PostgresSweeps(roles.worker)

    await sweeps.claim_due_doorbells(takeovers=True)
    assert await states_of(alone, approvals, claim) == [ApprovalState.PENDING]
    assert await approvals.try_park(claim.lease)
    await sweeps.claim_due_doorbells(takeovers=True)

    assert await states_of(alone, approvals, claim) == [ApprovalState.EXPIRED]


async def test_the_lease_of_a_worker_that_died_beside_a_waiting_turn_is_removed(
    alone: Harness, approvals: Approvals, roles: Roles
) -> None:
    """The worker announced an earlier end, and died before it released the lease."""
    first = await alone.start_turn()
    assert first.turn_id is not None
    await alone.timelines.commit(first.lease, closing(first, seen_inbox=first.inbox_seq))
    await alone.leases.release(first.lease, requeue=False)
    await alone.say("And now?", first.lease.conversation_id)
    claim = await alone.claim(first.lease.conversation_id)
    await ask(alone, approvals, claim)
    await approvals.try_park(claim.lease)
    announcing = await alone.claim(first.lease.conversation_id)
    await alone.leases.mark_announced(announcing.lease, first.turn_id, announcing.cursor)
    sweeps = PostgresSweeps(roles.worker)
    await sweeps.claim_due_doorbells(takeovers=True)
    assert await roles.superuser.fetchval("SELECT count(*) FROM lease") == 1

    await alone.expire_lease(first.lease.conversation_id)
    await sweeps.claim_due_doorbells(takeovers=True)

    assert await roles.superuser.fetchval("SELECT count(*) FROM lease") == 0
    assert await status_of(alone, claim) is TurnStatus.WAITING


async def test_one_of_many_concurrent_answers_counts(postgres_harness: Harness, approvals: Approvals) -> None:
    claim = await postgres_harness.start_turn()
    approval_id = await ask(postgres_harness, approvals, claim)
    await approvals.try_park(claim.lease)
    kinds = (SignalKind.APPROVE, SignalKind.DENY) * 4

    said = await asyncio.gather(
        *(answer(postgres_harness, claim.lease.conversation_id, approval_id, kind) for kind in kinds),
        return_exceptions=True,
    )

    receipts = [each for each in said if isinstance(each, Receipt)]
    assert len(receipts) == 4
    assert len({receipt.signal_id for receipt in receipts}) == 1
    assert [receipt.ring for receipt in receipts].count(True) == 1
    assert sum(isinstance(each, Conflict) for each in said) == 4


async def test_an_answer_during_parking_wakes_the_turn(postgres_harness: Harness, approvals: Approvals) -> None:
    harness = postgres_harness
    for _ in range(20):
        claim = await harness.start_turn()
        approval_id = await ask(harness, approvals, claim)

        parked, receipt = await asyncio.gather(
            approvals.try_park(claim.lease),
            answer(harness, claim.lease.conversation_id, approval_id, SignalKind.APPROVE),
        )

        assert parked is receipt.ring
        assert await status_of(harness, claim) is (TurnStatus.QUEUED if parked else TurnStatus.RUNNING)


async def test_an_erasure_takes_the_questions_too(
    postgres_harness: Harness, approvals: Approvals, roles: Roles
) -> None:
    claim = await postgres_harness.start_turn()
    await ask(postgres_harness, approvals, claim)
    await approvals.try_park(claim.lease)
    conversation_id = claim.lease.conversation_id

    async with roles.ingress.transaction(postgres_harness.principal) as transaction:
        row = await transaction.fetchrow("SELECT * FROM erase_conversation($1)", conversation_id)

    assert row is not None
    assert dict(zip(row["stores"], row["removed"], strict=True))["approval"] == 1
    remains = await roles.superuser.fetch("SELECT * FROM count_remains($1)", conversation_id)
    assert sum(each["remaining"] for each in remains) == 0


class TestMemoryApprovals(ApprovalsContract, AnswersContract):
    @pytest.fixture
    def approvals(self, memory_platform: MemoryPlatform) -> Approvals:
        return MemoryApprovals(memory_platform, owner="worker-1")

    @pytest.fixture
    def harness(self, memory_harness: Harness) -> Harness:
        return memory_harness


async def test_a_wait_in_memory_ends_after_its_deadline(
    memory_harness: Harness, memory_platform: MemoryPlatform
) -> None:
    approvals = MemoryApprovals(memory_platform, owner="worker-1")
    claim = await memory_harness.start_turn()
    await ask(memory_harness, approvals, claim, timeout_s=OVER_S)
    await approvals.try_park(claim.lease)

    assert expire_approvals(memory_platform) == (claim.lease.conversation_id,)

    assert await states_of(memory_harness, approvals, claim) == [ApprovalState.EXPIRED]
    assert await memory_harness.rival.try_claim(claim.lease.conversation_id) is not None
