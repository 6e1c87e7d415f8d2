"""Stages over the drivers in memory and over Postgres with the real roles, and the drivers over Redis."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.feedback.model import Feedback
from everturn.feedback.postgres import PostgresFeedback
from everturn.postgres.pool import open_database
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn.turns.detached import HOLD_S
from everturn.turns.postgres_inbox import PostgresInbox
from everturn.turns.postgres_leases import PostgresLeases
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_local.servers.databases import DatabaseUrls
from everturn_testing.core import FixedClock, SequentialIds
from everturn_testing.database_roles import Roles
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.inbox import MemoryInbox
from everturn_testing.turns.leases import MemoryLeases
from everturn_testing.turns.timelines import MemoryTimelines


@pytest.fixture
async def roles(database: DatabaseUrls) -> AsyncIterator[Roles]:
    superuser = await asyncpg.connect(database.superuser)
    try:
        async with (
            open_database(database.ingress, pool_size=24, application_name="test-ingress") as ingress,
            open_database(database.worker, pool_size=8, application_name="test-worker") as worker,
        ):
            yield Roles(ingress, worker, superuser)
    finally:
        await superuser.close()


@pytest.fixture(scope="module")
def module_ids() -> SequentialIds:
    """Ids for the rows of one module's database, which its tests share."""
    return SequentialIds()


@pytest.fixture
def postgres_harness(roles: Roles, module_ids: SequentialIds) -> Harness:
    async def expire_lease(conversation_id: ConversationId) -> None:
        await roles.superuser.execute(
            "UPDATE lease SET expires_at = now() - interval '1 s' WHERE conversation_id = $1", conversation_id
        )

    async def age_lease(conversation_id: ConversationId, held_s: float, lost_s: float) -> None:
        await roles.superuser.execute(
            "UPDATE lease SET claimed_at = now() - make_interval(secs => $2::float8 + $3::float8),"
            " expires_at = now() + make_interval(secs => CASE WHEN $3 = 0 THEN 15 ELSE -$3 END)"
            " WHERE conversation_id = $1",
            conversation_id,
            held_s,
            lost_s,
        )

    async def expire_holds() -> None:
        await roles.superuser.execute("UPDATE detached_run SET held_until = now() - interval '1 s'")

    return Harness(
        inbox=PostgresInbox(roles.ingress, share=1_000),
        leases=PostgresLeases(roles.worker, owner="worker-1"),
        rival=PostgresLeases(roles.worker, owner="worker-2"),
        timelines=PostgresTimelines(roles.worker),
        ids=module_ids,
        expire_lease=expire_lease,
        give_feedback=PostgresFeedback(roles.ingress).save,
        age_lease=age_lease,
        expire_holds=expire_holds,
    )


@pytest.fixture
async def redis_drivers(redis_url: str) -> AsyncIterator[RedisDrivers]:
    """The drivers over the session's Redis-protocol server, emptied for each test."""
    async with open_redis_drivers(redis_url, name="test") as opened:
        yield opened


@pytest.fixture
def memory_clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def memory_platform(memory_clock: FixedClock) -> MemoryPlatform:
    return MemoryPlatform(memory_clock)


@pytest.fixture
def memory_harness(memory_clock: FixedClock, memory_platform: MemoryPlatform) -> Harness:
    clock, platform = memory_clock, memory_platform

    async def expire_lease(_: ConversationId) -> None:
        clock.advance(16)

    async def age_lease(conversation_id: ConversationId, held_s: float, lost_s: float) -> None:
        row = platform.conversations[conversation_id]
        row.lease_ends_s = clock.monotonic() + held_s + (0 if lost_s else 15)
        clock.advance(held_s + lost_s)

    async def give_feedback(_: Principal, conversation_id: ConversationId, feedback: Feedback) -> None:
        platform.conversations[conversation_id].feedback.append(feedback)

    async def expire_holds() -> None:
        clock.advance(HOLD_S + 1)

    return Harness(
        inbox=MemoryInbox(platform),
        leases=MemoryLeases(platform, owner="worker-1"),
        rival=MemoryLeases(platform, owner="worker-2"),
        timelines=MemoryTimelines(platform),
        ids=SequentialIds(),
        expire_lease=expire_lease,
        give_feedback=give_feedback,
        age_lease=age_lease,
        expire_holds=expire_holds,
    )
