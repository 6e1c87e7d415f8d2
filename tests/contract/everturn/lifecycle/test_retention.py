"""Conversations without activity are erased; young and active ones are kept."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from everturn.conversations.model import ConversationChanges
from everturn.conversations.postgres import PostgresConversations
from everturn.core.errors import DatabaseFault, NotFound, Unavailable
from everturn.core.ids import ConversationId, TurnId
from everturn.feedback.model import Feedback, Reaction
from everturn.feedback.postgres import PostgresFeedback
from everturn.lifecycle.postgres_erasure import PostgresRemainingRows, PostgresRetention
from everturn.postgres.pool import SchemaDiffers
from everturn.turns.inbox import IdempotencyKey
from everturn.turns.postgres_approvals import PostgresApprovals
from everturn_testing.database_roles import Roles
from everturn_testing.turns.approvals_contract import ask
from everturn_testing.turns.harness import ANN, Harness


@pytest.fixture
async def retention(roles: Roles) -> PostgresRetention:
    await roles.superuser.execute("UPDATE conversation SET last_activity_at = now(), state = 'idle'")
    await set_limit(roles, 30)
    return PostgresRetention(roles.worker)


async def set_limit(roles: Roles, days: int | None) -> None:
    """As the migration does with RETENTION_DAYS."""
    await roles.superuser.execute("UPDATE retention_limit SET min_days = $1", days)


async def make(roles: Roles, harness: Harness, *, days: int) -> ConversationId:
    conversation_id = harness.ids.conversation()
    await PostgresConversations(roles.ingress).create(ANN, conversation_id, title="", bundle_id=None)
    await age(roles, conversation_id, days)
    return conversation_id


async def age(roles: Roles, conversation_id: ConversationId, days: int) -> None:
    await roles.superuser.execute(
        "UPDATE conversation SET last_activity_at = now() - $2 * interval '1 day' WHERE id = $1", conversation_id, days
    )


async def load_all_due(retention: PostgresRetention) -> set[ConversationId]:
    return set(await retention.load_due(days=30, limit=500))


async def test_old_conversations_are_due_the_oldest_first(
    retention: PostgresRetention, roles: Roles, postgres_harness: Harness
) -> None:
    old, _, oldest = [await make(roles, postgres_harness, days=days) for days in (40, 20, 50)]

    assert await retention.load_due(days=30, limit=1) == (oldest,)
    assert await retention.load_due(days=30, limit=5) == (oldest, old)
    assert await retention.load_due(days=30, limit=5, skip=[oldest]) == (old,)


async def test_a_due_conversation_is_erased_as_its_owner(
    retention: PostgresRetention, roles: Roles, postgres_harness: Harness
) -> None:
    old, young = [await make(roles, postgres_harness, days=days) for days in (40, 20)]

    erased, kept = [await retention.try_erase(each, days=30) for each in (old, young)]

    assert erased is not None
    assert (erased.owner.tenant, erased.owner.user_id, erased.rows) == ("acme", "ann", 1)
    assert kept is None
    assert (await PostgresConversations(roles.ingress).load(ANN, young)).id == young
    assert not any((await PostgresRemainingRows(roles.ingress).count_rows(old)).values())
    with pytest.raises(NotFound):
        await PostgresConversations(roles.ingress).load(ANN, old)


async def test_waiting_and_running_conversations_do_not_expire(
    retention: PostgresRetention, roles: Roles, postgres_harness: Harness
) -> None:
    queued = (await postgres_harness.say("waits")).conversation_id
    running = (await postgres_harness.start_turn()).lease.conversation_id
    asking = await postgres_harness.start_turn()
    approvals = PostgresApprovals(roles.worker)
    await ask(postgres_harness, approvals, asking)
    await approvals.try_park(asking.lease)
    open_ones = (queued, running, asking.lease.conversation_id)
    for conversation_id in open_ones:
        await age(roles, conversation_id, 99)

    assert await load_all_due(retention) & {*open_ones} == set()
    assert [await retention.try_erase(each, days=30) for each in open_ones] == [None] * 3


async def test_recently_renamed_or_rated_conversations_stay(
    retention: PostgresRetention, roles: Roles, postgres_harness: Harness
) -> None:
    named, judged, watched = [await end_turn(roles, postgres_harness) for _ in range(3)]
    judgement = Feedback(judged[1], "user", Reaction.OK, "good", datetime.now(UTC))
    of_machine = replace(judgement, turn_id=watched[1], origin="machine")
    await PostgresConversations(roles.ingress).save(ANN, named[0], ConversationChanges(title="Kept"))
    await PostgresFeedback(roles.ingress).save(ANN, judged[0], judgement)
    await PostgresFeedback(roles.ingress).save(ANN, watched[0], of_machine)

    assert await load_all_due(retention) == {watched[0]}
    assert await retention.try_erase(judged[0], days=30) is None


async def end_turn(roles: Roles, harness: Harness) -> tuple[ConversationId, TurnId]:
    """A conversation with a turn that was answered forty days ago."""
    receipt = await harness.say("hello")
    assert receipt.turn_id is not None
    await roles.superuser.execute(
        "UPDATE turn SET status = 'completed', announced_at = now() WHERE id = $1", receipt.turn_id
    )
    await roles.superuser.execute("UPDATE conversation SET state = 'idle' WHERE id = $1", receipt.conversation_id)
    await age(roles, receipt.conversation_id, 40)
    return receipt.conversation_id, receipt.turn_id


async def test_no_conversation_is_given_to_two_workers(
    retention: PostgresRetention, roles: Roles, postgres_harness: Harness
) -> None:
    made = await make(roles, postgres_harness, days=40)

    tries = await asyncio.gather(*(retention.try_erase(made, days=30) for _ in range(4)))

    assert [each.conversation_id for each in tries if each] == [made]


async def test_a_large_conversation_is_given_more_time_than_other_statements(
    retention: PostgresRetention, roles: Roles, postgres_harness: Harness
) -> None:
    made = await make(roles, postgres_harness, days=40)
    await roles.superuser.execute(
        "CREATE FUNCTION tell_limit() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'limit %', current_setting('statement_timeout') USING ERRCODE = '57014'; END $$;"
        " CREATE TRIGGER tell_limit BEFORE DELETE ON conversation FOR EACH ROW EXECUTE FUNCTION tell_limit()"
    )
    try:
        with pytest.raises(Unavailable, match="limit 5min"):
            await retention.try_erase(made, days=30)
    finally:
        await roles.superuser.execute("DROP FUNCTION tell_limit CASCADE")

    assert await retention.try_erase(made, days=30) is not None


async def test_expired_keys_are_removed_even_without_retention(
    retention: PostgresRetention, roles: Roles, postgres_harness: Harness
) -> None:
    receipt = await postgres_harness.say("x", key=IdempotencyKey("m", "old", "h"))
    await postgres_harness.say("x", key=IdempotencyKey("m", "fresh", "h"))
    await roles.superuser.execute("UPDATE idempotency SET expires_at = now() - interval '1 s' WHERE key = 'old'")

    removed = await retention.remove_expired_rows(days=0, limit=10)

    assert removed == {"idempotency": 1, "mcp_connection": 0, "mcp_request": 0, "project_skill": 0}
    assert not await roles.superuser.fetchval(
        "SELECT count(*) FROM idempotency WHERE conversation_id = $1", receipt.conversation_id
    )


async def test_old_rows_of_the_ledgers_go(
    retention: PostgresRetention, roles: Roles, postgres_harness: Harness
) -> None:
    claim = await postgres_harness.start_turn()
    await roles.superuser.execute(
        "UPDATE turn SET ended_at = now() - interval '40 days', status = 'completed' WHERE id = $1", claim.turn_id
    )
    for days, number in ((40, 1), (20, 2)):
        await roles.superuser.execute(
            "INSERT INTO usage_event (conversation_id, tenant, project, user_id, turn_id, model, role, input_tokens,"
            " output_tokens, cache_read_tokens, cache_write_tokens, cost_usd, estimated, ts)"
            " VALUES ($1, 'acme', 'support', 'ann', $2, 'm', 'r', 1, 1, 0, 0, 0, false, now() - $3 * interval '1 day')",
            claim.lease.conversation_id,
            claim.turn_id,
            days,
        )
        await roles.superuser.execute(
            "INSERT INTO tool_effect (turn_id, call_id, conversation_id, tenant, project, user_id, tool_id, args_hash,"
            " effect, state) VALUES ($1, $2, $3, 'acme', 'support', 'ann', 't', 'h', 'pure', 'committed')",
            claim.turn_id,
            f"call_{number}",
            claim.lease.conversation_id,
        )

    removed = await retention.remove_expired_rows(days=30, limit=10)

    assert (removed["usage_event"], removed["tool_effect"]) == (1, 2)


async def test_only_a_worker_may_expire(roles: Roles) -> None:
    for statement in (
        "SELECT due_conversations('1 s', '{}', 5)",
        "SELECT * FROM expire_conversation('conv_x', '1 s')",
        "SELECT * FROM remove_expired_rows('1 s', 5)",
    ):
        with pytest.raises(DatabaseFault, match="42501"):
            async with roles.ingress.connection() as connection:
                await connection.fetch(statement)


async def test_a_worker_can_erase_nothing_younger_than_the_operator_says(
    retention: PostgresRetention, roles: Roles, postgres_harness: Harness
) -> None:
    """The age in a call comes from the worker, and a compromised worker can send any value."""
    old, young = [await make(roles, postgres_harness, days=days) for days in (40, 20)]

    async with roles.worker.connection() as connection:
        due = await connection.fetch("SELECT due_conversations('0 s', '{}', 500) AS id")
        erased = await connection.fetch("SELECT * FROM expire_conversation($1, '-1 day')", young)

    assert [row["id"] for row in due] == [old]
    assert erased == []


async def test_nothing_expires_where_the_operator_keeps_all_for_ever(
    retention: PostgresRetention, roles: Roles, postgres_harness: Harness
) -> None:
    old = await make(roles, postgres_harness, days=4000)
    await set_limit(roles, None)

    for asking in (
        retention.load_due(days=30, limit=5),
        retention.try_erase(old, days=30),
        retention.remove_expired_rows(days=30, limit=5),
    ):
        with pytest.raises(Unavailable, match="RETENTION_DAYS"):
            await asking
    assert "idempotency" in await retention.remove_expired_rows(days=0, limit=5)


async def test_no_service_writes_the_limit_or_erases_by_an_age_of_its_own(roles: Roles) -> None:
    for service in (roles.worker, roles.ingress):
        for statement in (
            "UPDATE retention_limit SET min_days = 1",
            "INSERT INTO retention_limit (min_days) VALUES (1)",
            "SELECT * FROM retention_limit",
        ):
            with pytest.raises(DatabaseFault, match="42501"):
                async with service.connection() as connection:
                    await connection.execute(statement)
        with pytest.raises(SchemaDiffers):
            async with service.connection() as connection:
                await connection.fetch("SELECT * FROM erase_expired('0 s', 100000)")


@pytest.mark.parametrize("statement", ["SELECT lo_create(0)", "SELECT lo_from_bytea(0, 'x')", "SELECT lo_creat(-1)"])
async def test_no_service_stores_large_objects_beside_the_policies(roles: Roles, statement: str) -> None:
    for service in (roles.worker, roles.ingress):
        with pytest.raises(DatabaseFault, match="42501"):
            async with service.connection() as connection:
                await connection.execute(statement)
