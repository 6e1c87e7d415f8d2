"""Usage reports are the same before and after conversations are deleted."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everturn.accounts.postgres import PostgresUsageReport
from everturn.accounts.usage import UsageTotal
from everturn.conversations.postgres import PostgresConversations
from everturn.core.errors import DatabaseFault
from everturn.core.ids import ConversationId
from everturn.lifecycle.postgres_erasure import PostgresRetention
from everturn.postgres.pool import open_database
from everturn.turns.model import UsageEvent
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import ANN, Harness, commit, think

DECISION = UsageEvent("m", "decision", 10, 5, 3, 1, 0.25, estimated=True)
TITLE = UsageEvent("m", "title", 1, 2, 0, 0, 0.0, estimated=False, cost_known=False)
TODAY = datetime.now(UTC).date()


class Report:
    """The report of ANN's tenant for an operator."""

    def __init__(self, report: PostgresUsageReport) -> None:
        self._report = report

    async def load(self, tenant: str | None = ANN.tenant, days: int = 60) -> tuple[UsageTotal, ...]:
        start, end = TODAY - timedelta(days=days), TODAY + timedelta(days=2)
        return await self._report.load(tenant=tenant, start=start, end=end, limit=100)


@pytest.fixture
async def report(database: Any, roles: Roles) -> AsyncGenerator[Report]:
    await roles.superuser.execute("TRUNCATE usage_event, usage_total")
    async with open_database(database.owner, pool_size=1, application_name="test-operator") as owner:
        yield Report(PostgresUsageReport(owner))


async def use(harness: Harness, *usage: UsageEvent) -> ConversationId:
    claim = await harness.start_turn()
    await harness.timelines.commit(claim.lease, replace(commit(claim, think(claim, "a")), usage=usage))
    return claim.lease.conversation_id


async def test_usage_is_the_same_after_conversations_are_deleted(
    report: Report, roles: Roles, postgres_harness: Harness
) -> None:
    conversations = PostgresConversations(roles.ingress)
    used = [await use(postgres_harness, DECISION, TITLE), await use(postgres_harness, DECISION)]
    before = await report.load()

    await conversations.erase(ANN, used[0])
    between = await report.load()
    await conversations.erase(ANN, used[1])

    assert await roles.superuser.fetchval("SELECT count(*) FROM usage_event") == 0
    assert [(total.role, total.calls, total.input_tokens, total.cost_usd) for total in before] == [
        ("decision", 2, 20, 0.5),
        ("title", 1, 1, 0.0),
    ]
    assert [(total.estimated_calls, total.unpriced_calls) for total in before] == [(2, 0), (0, 1)]
    assert before == between == await report.load()
    assert await report.load("another") == ()


async def test_usage_is_the_same_after_old_rows_expired(
    report: Report, roles: Roles, postgres_harness: Harness
) -> None:
    conversation_id = await use(postgres_harness, DECISION, TITLE)
    await roles.superuser.execute("UPDATE retention_limit SET min_days = 30")
    await roles.superuser.execute("UPDATE usage_event SET ts = now() - interval '40 days'")
    before = await report.load()

    await PostgresRetention(roles.worker).remove_expired_rows(days=30, limit=1)
    await PostgresRetention(roles.worker).remove_expired_rows(days=30, limit=1)

    assert await roles.superuser.fetchval("SELECT count(*) FROM usage_event") == 0
    assert len(before) == 2
    assert before == await report.load()
    assert await report.load(days=30) == ()
    await PostgresConversations(roles.ingress).erase(ANN, conversation_id)


async def test_conversations_that_are_deleted_at_once_lose_no_usage(
    report: Report, roles: Roles, postgres_harness: Harness
) -> None:
    used = [await use(postgres_harness, DECISION, TITLE) for _ in range(8)]
    before = await report.load()

    await asyncio.gather(*(PostgresConversations(roles.ingress).erase(ANN, each) for each in used))

    assert before == await report.load()


async def test_an_erasure_that_is_rolled_back_adds_nothing(
    report: Report, roles: Roles, postgres_harness: Harness
) -> None:
    conversation_id = await use(postgres_harness, DECISION)
    before = await report.load()

    transaction = roles.superuser.transaction()
    await transaction.start()
    await roles.superuser.execute("DELETE FROM usage_event WHERE conversation_id = $1", conversation_id)
    await transaction.rollback()

    assert before == await report.load()


@pytest.mark.parametrize("role", ["ingress", "worker"])
async def test_no_service_reads_or_changes_the_sums(roles: Roles, role: str) -> None:
    for statement in ("SELECT FROM usage_total", "DELETE FROM usage_total", "SELECT add_usage_totals()"):
        with pytest.raises(DatabaseFault, match="42501"):
            async with getattr(roles, role).connection() as connection:
                await connection.execute(statement)
