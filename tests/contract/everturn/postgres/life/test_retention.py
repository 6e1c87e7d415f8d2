"""What nobody touched for long enough goes; what is young, or at work, stays."""

import asyncio

import asyncpg
import pytest

from everturn.errors import NotFound
from everturn.model.ids import ConversationId
from everturn.ports.inbox import IdempotencyKey
from everturn.postgres.conversations import PostgresConversations
from everturn.postgres.life.remains import PostgresRemainingRows
from everturn.postgres.life.retention import PostgresRetention
from everturn.testing.database_roles import Roles
from everturn.testing.turns.stage import ANN, Stage


@pytest.fixture
async def retention(roles: Roles) -> PostgresRetention:
    await roles.superuser.execute("UPDATE conversation SET last_activity_at = now(), state = 'idle'")
    return PostgresRetention(roles.worker)


async def make(roles: Roles, stage: Stage, *, days: int) -> ConversationId:
    conversation_id = stage.ids.conversation()
    await PostgresConversations(roles.ingress).create(ANN, conversation_id, title="", bundle_id=None)
    await age(roles, conversation_id, days)
    return conversation_id


async def age(roles: Roles, conversation_id: ConversationId, days: int) -> None:
    await roles.superuser.execute(
        "UPDATE conversation SET last_activity_at = now() - $2 * interval '1 day' WHERE id = $1", conversation_id, days
    )


async def test_old_conversations_go_the_oldest_first_in_the_name_of_their_owners(
    retention: PostgresRetention, roles: Roles, postgres_stage: Stage
) -> None:
    old, young, oldest = [await make(roles, postgres_stage, days=days) for days in (40, 20, 50)]

    first = await retention.erase_expired(days=30, limit=1)
    second = await retention.erase_expired(days=30, limit=5)

    assert [each.conversation_id for each in (*first, *second)] == [oldest, old]
    assert (first[0].owner.tenant, first[0].owner.user_id, first[0].rows) == ("acme", "ann", 1)
    assert (await PostgresConversations(roles.ingress).load(ANN, young)).id == young
    assert not any((await PostgresRemainingRows(roles.ingress).count_rows(old)).values())
    with pytest.raises(NotFound):
        await PostgresConversations(roles.ingress).load(ANN, old)


async def test_what_waits_or_runs_is_not_expired(
    retention: PostgresRetention, roles: Roles, postgres_stage: Stage
) -> None:
    queued = (await postgres_stage.say("waits")).conversation_id
    running = (await postgres_stage.start_turn()).lease.conversation_id
    for conversation_id in (queued, running):
        await age(roles, conversation_id, 99)

    assert await retention.erase_expired(days=30, limit=5) == ()


async def test_no_conversation_is_given_to_two_workers(
    retention: PostgresRetention, roles: Roles, postgres_stage: Stage
) -> None:
    made = [await make(roles, postgres_stage, days=40) for _ in range(6)]

    batches = await asyncio.gather(*(retention.erase_expired(days=30, limit=6) for _ in range(4)))

    assert sorted(each.conversation_id for batch in batches for each in batch) == sorted(made)


async def test_keys_that_ran_out_go_also_where_conversations_are_kept_for_ever(
    retention: PostgresRetention, roles: Roles, postgres_stage: Stage
) -> None:
    receipt = await postgres_stage.say("x", key=IdempotencyKey("m", "old", "h"))
    await postgres_stage.say("x", key=IdempotencyKey("m", "fresh", "h"))
    await roles.superuser.execute("UPDATE idempotency SET expires_at = now() - interval '1 s' WHERE key = 'old'")

    removed = await retention.remove_expired_rows(days=0, limit=10)

    assert removed == {"idempotency": 1}
    assert not await roles.superuser.fetchval(
        "SELECT count(*) FROM idempotency WHERE conversation_id = $1", receipt.conversation_id
    )


async def test_old_rows_of_the_ledgers_go(retention: PostgresRetention, roles: Roles, postgres_stage: Stage) -> None:
    claim = await postgres_stage.start_turn()
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
    for statement in ("SELECT * FROM erase_expired('1 s', 5)", "SELECT * FROM remove_expired_rows('1 s', 5)"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with roles.ingress.connection() as connection:
                await connection.fetch(statement)
