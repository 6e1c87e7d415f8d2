"""What the sweeper finds in Postgres: lost doorbells, dead workers, unannounced ends, and places in a lane."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Literal

import pytest

from everturn.core.identity import Lane, Principal
from everturn.core.ids import ConversationId
from everturn.postgres.pool import Connection, Database
from everturn.turns.model import Claim
from everturn.turns.ports import Ring
from everturn.turns.postgres_inbox import PostgresInbox
from everturn.turns.postgres_leases import PostgresSweeps
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import Harness, closing


@pytest.fixture
async def harness(postgres_harness: Harness, roles: Roles) -> AsyncIterator[Harness]:
    """The tables have no turns of other tests."""
    await roles.superuser.execute("TRUNCATE conversation CASCADE")
    yield postgres_harness


@pytest.fixture
def sweeps(roles: Roles) -> PostgresSweeps:
    return PostgresSweeps(roles.worker, share=2)


class Held(Database):
    """A database whose transactions stay open after their last statement until they are released."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.done = asyncio.Event()
        self.released = asyncio.Event()

    @asynccontextmanager
    async def transaction(
        self, principal: Principal, *, isolation: Literal["repeatable_read"] | None = None, readonly: bool = False
    ) -> AsyncGenerator[Connection]:
        async with self._inner.transaction(principal, isolation=isolation, readonly=readonly) as transaction:
            yield transaction
            self.done.set()
            await self.released.wait()

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        async with self._inner.connection() as connection, connection.transaction():
            yield connection
            self.done.set()
            await self.released.wait()


async def until_waiting(roles: Roles, count: int) -> None:
    """Until so many sessions wait for locks."""
    async with asyncio.timeout(30):
        waiting = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted"
        while await roles.superuser.fetchval(waiting) < count:  # noqa: ASYNC110 - only the server knows who waits
            await asyncio.sleep(0.01)


async def fill(database: Database, principal: Principal, conversation_id: ConversationId) -> list[ConversationId]:
    """What `next_of_tenant` does, in a transaction of this database."""
    async with database.transaction(principal) as transaction:
        rows = await transaction.fetch("SELECT * FROM next_of_tenant($1, 2)", conversation_id)
    return [row["conversation_id"] for row in rows]


async def may_have_next(harness: Harness, claim: Claim) -> bool:
    """What the worker that has claimed this turn learns when it begins."""
    assert claim.turn_id is not None
    start = await harness.timelines.load_start(harness.principal, claim.lease.conversation_id, claim.turn_id)
    return start.may_have_next


async def age_doorbell(roles: Roles, conversation_id: ConversationId, seconds: float) -> None:
    await roles.superuser.execute(
        "UPDATE turn SET doorbell_at = doorbell_at - make_interval(secs => $2) WHERE conversation_id = $1",
        conversation_id,
        seconds,
    )


async def test_a_fresh_doorbell_is_left_alone(harness: Harness, sweeps: PostgresSweeps) -> None:
    await harness.say()

    assert await sweeps.claim_due_doorbells(takeovers=True) == ()


async def test_an_old_doorbell_is_rung_again_with_growing_pauses(
    harness: Harness, sweeps: PostgresSweeps, roles: Roles
) -> None:
    receipt = await harness.say()
    ring = (Ring(receipt.conversation_id, Lane.PAID),)

    for pause_s in (5, 10, 20, 40, 60, 60):
        await age_doorbell(roles, receipt.conversation_id, pause_s - 1)
        assert await sweeps.claim_due_doorbells(takeovers=True) == ()
        await age_doorbell(roles, receipt.conversation_id, 1.5)
        assert await sweeps.claim_due_doorbells(takeovers=True) == ring


async def test_a_turn_whose_worker_died_is_found_but_only_with_takeovers(
    harness: Harness, sweeps: PostgresSweeps, roles: Roles
) -> None:
    claim = await harness.start_turn()
    await age_doorbell(roles, claim.lease.conversation_id, 30)
    assert await sweeps.claim_due_doorbells(takeovers=True) == ()
    await harness.expire_lease(claim.lease.conversation_id)

    assert await sweeps.claim_due_doorbells(takeovers=False) == ()
    assert await sweeps.claim_due_doorbells(takeovers=True) == (Ring(claim.lease.conversation_id, Lane.PAID),)
    assert await sweeps.claim_due_doorbells(takeovers=True) == ()


async def test_an_end_without_a_notification_is_found(harness: Harness, sweeps: PostgresSweeps, roles: Roles) -> None:
    claim = await harness.start_turn()
    await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
    await age_doorbell(roles, claim.lease.conversation_id, 30)
    assert await sweeps.claim_due_doorbells(takeovers=True) == ()

    await harness.leases.release(claim.lease, requeue=False)

    assert await sweeps.claim_due_doorbells(takeovers=True) == (Ring(claim.lease.conversation_id, Lane.PAID),)


async def test_the_lease_of_a_worker_that_died_after_its_work_is_removed(
    harness: Harness, sweeps: PostgresSweeps, roles: Roles
) -> None:
    claim = await harness.start_turn()
    assert claim.turn_id is not None
    await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
    await harness.leases.mark_announced(claim.lease, claim.turn_id, claim.cursor)
    unfinished = await harness.start_turn()
    await sweeps.claim_due_doorbells(takeovers=True)
    assert await roles.superuser.fetchval("SELECT count(*) FROM lease") == 2
    for lease in (claim.lease, unfinished.lease):
        await harness.expire_lease(lease.conversation_id)

    await sweeps.claim_due_doorbells(takeovers=False)
    assert await roles.superuser.fetchval("SELECT count(*) FROM lease") == 2
    await sweeps.claim_due_doorbells(takeovers=True)

    held = await roles.superuser.fetch("SELECT conversation_id FROM lease")
    assert [row["conversation_id"] for row in held] == [unfinished.lease.conversation_id]


async def test_an_announced_end_is_left_alone(harness: Harness, sweeps: PostgresSweeps, roles: Roles) -> None:
    claim = await harness.start_turn()
    assert claim.turn_id is not None
    await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
    await harness.leases.mark_announced(claim.lease, claim.turn_id, claim.cursor)
    await harness.leases.release(claim.lease, requeue=False)
    await age_doorbell(roles, claim.lease.conversation_id, 30)

    assert await sweeps.claim_due_doorbells(takeovers=True) == ()


async def test_a_worker_that_reads_the_start_of_its_turn_slowly_delays_no_accept(
    harness: Harness, roles: Roles
) -> None:
    claim = await harness.start_turn()
    async with roles.worker.connection() as connection, connection.transaction():
        query = "SELECT * FROM load_turn_start($1, $2, $3, $4, $5, true)"
        where = (*harness.principal.owner, claim.lease.conversation_id, claim.turn_id)
        assert await connection.fetch(query, *where)

        assert await roles.superuser.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


async def test_a_place_in_the_lane_goes_to_the_oldest_waiting_turn(
    harness: Harness, sweeps: PostgresSweeps, roles: Roles
) -> None:
    crowded = replace(harness, inbox=PostgresInbox(roles.ingress, share=2), principal=Principal("crowded", "p", "u"))
    receipts = [await crowded.say() for _ in range(4)]
    assert await sweeps.claim_next_doorbells(receipts[0].conversation_id) == ()

    await crowded.claim(receipts[0].conversation_id)
    rings = await sweeps.claim_next_doorbells(receipts[0].conversation_id)

    assert rings == (Ring(receipts[2].conversation_id, Lane.REGISTERED),)
    assert await sweeps.claim_next_doorbells(receipts[0].conversation_id) == ()


async def test_places_that_become_free_together_are_filled_once(
    harness: Harness, sweeps: PostgresSweeps, roles: Roles
) -> None:
    crowded = replace(harness, inbox=PostgresInbox(roles.ingress, share=2), principal=Principal("together", "p", "u"))
    receipts = [await crowded.say() for _ in range(12)]
    for receipt in receipts[:2]:
        await crowded.claim(receipt.conversation_id)

    database = Held(roles.worker)
    first = asyncio.create_task(fill(database, crowded.principal, receipts[0].conversation_id))
    await database.done.wait()
    others = [asyncio.create_task(sweeps.claim_next_doorbells(receipts[n % 2].conversation_id)) for n in range(3)]
    try:
        await until_waiting(roles, len(others))
    finally:
        database.released.set()

    assert sorted(await first) == sorted(receipt.conversation_id for receipt in receipts[2:4])
    assert [ring for rings in await asyncio.gather(*others) for ring in rings] == []


async def test_a_newcomer_takes_the_place_that_is_left_while_another_is_filled(harness: Harness, roles: Roles) -> None:
    crowded = replace(harness, inbox=PostgresInbox(roles.ingress, share=2), principal=Principal("left", "p", "u"))
    receipts = [await crowded.say() for _ in range(3)]
    for receipt in receipts[:2]:
        await crowded.claim(receipt.conversation_id)

    database = Held(roles.worker)
    filling = asyncio.create_task(fill(database, crowded.principal, receipts[0].conversation_id))
    await database.done.wait()
    accepting = asyncio.create_task(crowded.say())
    try:
        await until_waiting(roles, 1)
    finally:
        database.released.set()

    assert await filling == [receipts[2].conversation_id]
    assert (await accepting).ring


async def test_a_turn_gets_a_place_freed_before_its_commit(
    harness: Harness, sweeps: PostgresSweeps, roles: Roles
) -> None:
    database = Held(roles.ingress)
    crowded = replace(harness, inbox=PostgresInbox(roles.ingress, share=2), principal=Principal("open", "p", "u"))
    receipts = [await crowded.say() for _ in range(2)]
    accepting = asyncio.create_task(replace(crowded, inbox=PostgresInbox(database, share=2)).say())
    await database.done.wait()

    for receipt in receipts:
        await crowded.claim(receipt.conversation_id)
    filling = [asyncio.create_task(sweeps.claim_next_doorbells(receipt.conversation_id)) for receipt in receipts]
    try:
        await until_waiting(roles, len(filling))
    finally:
        database.released.set()
    rung = [ring.conversation_id for rings in await asyncio.gather(*filling) for ring in rings]

    late = await accepting
    assert not late.ring
    assert rung == [late.conversation_id]
    assert (await crowded.say()).ring


async def test_a_claim_with_no_turn_behind_it_has_no_next(harness: Harness, roles: Roles) -> None:
    crowded = replace(harness, inbox=PostgresInbox(roles.ingress, share=2), principal=Principal("quiet", "p", "u"))
    other = replace(crowded, principal=Principal("other", "p", "u"))
    receipts = [await crowded.say() for _ in range(3)]
    alone = await other.claim((await other.say()).conversation_id)

    first = await crowded.claim(receipts[0].conversation_id)

    assert await may_have_next(crowded, first)
    assert not await may_have_next(other, alone)
    await fill(roles.worker, crowded.principal, receipts[0].conversation_id)
    assert not await may_have_next(crowded, first)


async def test_a_turn_that_is_being_accepted_may_be_next(harness: Harness, roles: Roles) -> None:
    database = Held(roles.ingress)
    crowded = replace(harness, inbox=PostgresInbox(roles.ingress, share=2), principal=Principal("late", "p", "u"))
    receipt = await crowded.say()
    accepting = asyncio.create_task(replace(crowded, inbox=PostgresInbox(database, share=2)).say())
    await database.done.wait()

    try:
        assert await may_have_next(crowded, await crowded.claim(receipt.conversation_id))
    finally:
        database.released.set()

    assert (await accepting).ring


async def test_a_newcomer_takes_no_place_that_an_older_turn_waits_for(
    harness: Harness, sweeps: PostgresSweeps, roles: Roles
) -> None:
    crowded = replace(harness, inbox=PostgresInbox(roles.ingress, share=2), principal=Principal("newcomer", "p", "u"))
    receipts = [await crowded.say() for _ in range(3)]
    await crowded.claim(receipts[0].conversation_id)

    newcomer = await crowded.say()
    rings = await sweeps.claim_next_doorbells(receipts[0].conversation_id)

    assert not newcomer.ring
    assert rings == (Ring(receipts[2].conversation_id, Lane.REGISTERED),)


async def test_the_sweep_fills_places_too(harness: Harness, sweeps: PostgresSweeps, roles: Roles) -> None:
    crowded = replace(harness, inbox=PostgresInbox(roles.ingress, share=2), principal=Principal("crowded", "p", "u"))
    receipts = [await crowded.say() for _ in range(5)]
    for receipt in receipts[:2]:
        await crowded.claim(receipt.conversation_id)

    rings = await sweeps.claim_due_doorbells(takeovers=True)

    assert {ring.conversation_id for ring in rings} == {receipt.conversation_id for receipt in receipts[2:4]}


async def test_a_sweep_is_bounded(harness: Harness, sweeps: PostgresSweeps, roles: Roles) -> None:
    await roles.superuser.execute(
        "INSERT INTO conversation (id, tenant, project, user_id, state)"
        " SELECT 'conv_' || n, 't' || n, 'p', 'u', 'queued' FROM generate_series(1, 450) AS n"
    )
    await roles.superuser.execute(
        "INSERT INTO turn (id, conversation_id, tenant, project, user_id, ordinal, lane, roles, request)"
        " SELECT 'turn_' || n, 'conv_' || n, 't' || n, 'p', 'u', 1, 'paid', '{}', '' FROM generate_series(1, 450) AS n"
    )

    sizes = [len(await sweeps.claim_due_doorbells(takeovers=True)) for _ in range(4)]

    assert sizes == [200, 200, 50, 0]
