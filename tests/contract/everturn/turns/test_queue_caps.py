"""Postgres enforces the caps of the queue, also for concurrent messages at several ingresses."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from everturn.core.identity import Principal
from everturn.queue.model import QueueCaps, QueueFull
from everturn.turns.postgres_inbox import UNLOCKED_TURNS, PostgresInbox
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.queue_caps_contract import CAPS, QueueCapsContract, send


@pytest.fixture
async def capped(postgres_harness: Harness, roles: Roles) -> Harness:
    await roles.superuser.execute("UPDATE turn SET status = 'cancelled' WHERE status = 'queued'")
    return with_caps(postgres_harness, roles, CAPS)


def with_caps(harness: Harness, roles: Roles, caps: QueueCaps) -> Harness:
    return replace(harness, inbox=PostgresInbox(roles.ingress, caps=caps))


class TestPostgresInbox(QueueCapsContract):
    pass


async def send_together(harness: Harness, principals: list[tuple[str, str]]) -> Counter[str]:
    """How many were refused by which cap; `taken` counts the accepted ones."""

    async def take(tenant: str, user: str) -> str:
        try:
            await send(harness, tenant, user)
        except QueueFull as error:
            return error.full
        return "taken"

    return Counter(await asyncio.gather(*(take(*each) for each in principals)))


async def test_tenants_that_come_together_never_exceed_the_queue(capped: Harness, roles: Roles) -> None:
    outcomes = await send_together(capped, [(f"t{n}", "u") for n in range(2 * CAPS.total)])

    assert outcomes == {"taken": CAPS.total, "queue": CAPS.total}
    waiting = "SELECT count(*) FROM turn WHERE status = 'queued'"
    assert await roles.superuser.fetchval(waiting) == CAPS.total


async def test_users_that_come_together_never_exceed_their_tenants_share(capped: Harness, roles: Roles) -> None:
    outcomes = await send_together(capped, [("flood", f"u{n}") for n in range(24)])

    assert outcomes == {"taken": CAPS.tenant_on_lane, "tenant": 24 - CAPS.tenant_on_lane}
    stored = "SELECT count(*) FROM conversation WHERE tenant = 'flood'"
    assert await roles.superuser.fetchval(stored) == CAPS.tenant_on_lane
    await send(capped, "calm", "u")


async def test_messages_of_a_user_that_come_together_never_exceed_its_share(capped: Harness) -> None:
    assert await send_together(capped, [("one", "u")] * 12) == {"taken": CAPS.user, "user": 12 - CAPS.user}


async def test_a_queue_with_much_room_lets_tenants_accept_beside_each_other(capped: Harness, roles: Roles) -> None:
    roomy = with_caps(capped, roles, QueueCaps(UNLOCKED_TURNS + 1))
    held = roles.superuser.transaction()
    await held.start()
    await roles.superuser.execute("SELECT pg_advisory_xact_lock(hashtextextended('queue', 0))")
    try:
        async with asyncio.timeout(60):
            receipt = await replace(roomy, principal=Principal("first", "p", "u")).say()
    finally:
        await held.rollback()

    assert receipt.turn_id is not None
