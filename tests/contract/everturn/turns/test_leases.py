"""Leases in memory and in Postgres keep one contract; Postgres also under contention."""

import asyncio

import pytest

from everturn.core.errors import StaleFence
from everturn.turns.model import Claim
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import Harness, closing, commit, think
from everturn_testing.turns.leases_contract import LeasesContract


class TestPostgresLeases(LeasesContract):
    @pytest.fixture
    def harness(self, postgres_harness: Harness) -> Harness:
        return postgres_harness


async def test_many_claims_at_once_give_one_lease(postgres_harness: Harness) -> None:
    receipt = await postgres_harness.say()

    claims = await asyncio.gather(
        *(worker.try_claim(receipt.conversation_id) for worker in (postgres_harness.leases, postgres_harness.rival) * 5)
    )

    assert len([claim for claim in claims if claim is not None]) == 1


async def test_a_stale_append_and_a_claim_never_both_succeed(postgres_harness: Harness) -> None:
    harness = postgres_harness
    for _ in range(20):
        claim = await harness.start_turn()
        await harness.expire_lease(claim.lease.conversation_id)

        written, taken = await asyncio.gather(
            harness.timelines.commit(claim.lease, commit(claim, think(claim, "late"))),
            harness.rival.try_claim(claim.lease.conversation_id),
            return_exceptions=True,
        )

        assert isinstance(taken, Claim)
        blocks = await harness.timelines.load_recent_blocks(harness.principal, claim.lease.conversation_id)
        assert taken.next_seq == len(blocks) + 1
        assert len(blocks) == (0 if isinstance(written, StaleFence) else 1)


async def test_a_renewal_does_not_wait_for_a_locked_row_and_says_so(postgres_harness: Harness, roles: Roles) -> None:
    one, two = await postgres_harness.start_turn(), await postgres_harness.start_turn()
    held = {claim.lease.conversation_id: claim.lease.fence for claim in (one, two)}
    async with roles.superuser.transaction():
        await roles.superuser.execute(
            "SELECT FROM lease WHERE conversation_id = $1 FOR UPDATE", one.lease.conversation_id
        )

        async with asyncio.timeout(10):
            renewed = await postgres_harness.leases.renew(held)

    assert renewed == {one.lease.conversation_id: None, two.lease.conversation_id: two.inbox_seq}


async def test_an_expired_lease_being_claimed_is_not_renewed(postgres_harness: Harness, roles: Roles) -> None:
    claim = await postgres_harness.start_turn()
    conversation_id = claim.lease.conversation_id
    await postgres_harness.expire_lease(conversation_id)
    async with roles.superuser.transaction():
        await roles.superuser.execute("SELECT FROM lease WHERE conversation_id = $1 FOR UPDATE", conversation_id)

        assert await postgres_harness.leases.renew({conversation_id: claim.lease.fence}) == {}


async def test_no_lease_row_is_left_after_a_release(postgres_harness: Harness, roles: Roles) -> None:
    claim = await postgres_harness.start_turn()
    await postgres_harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))

    await postgres_harness.leases.release(claim.lease, requeue=False)

    left = await roles.superuser.fetchval(
        "SELECT count(*) FROM lease WHERE conversation_id = $1", claim.lease.conversation_id
    )
    assert left == 0


class TestMemoryLeases(LeasesContract):
    @pytest.fixture
    def harness(self, memory_harness: Harness) -> Harness:
        return memory_harness
