"""Timelines in memory and in Postgres keep one contract; a commit is written as a whole or not at all."""

import asyncio
from dataclasses import replace

import pytest
from helpers.databases import without_standby

from everturn.core.errors import Conflict
from everturn.core.retry import RetryPolicy
from everturn.timeline.turns import SignalKind
from everturn.turns.model import Effect, EffectChange, EffectState, Promotion, UsageEvent
from everturn.turns.ports import InboxMoved
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import ANN, Harness, closing, commit, think
from everturn_testing.turns.timelines_contract import RecentBlocksContract, TimelinesContract

CONFIRMED_S = 0.5
"""How long a commit waits for the standby in a test."""
TRIES = 500
USAGE = UsageEvent("m", "decision", 10, 5, 3, 1, 0.25, True)


async def test_a_commit_that_fails_late_leaves_nothing(postgres_harness: Harness, roles: Roles) -> None:
    claim = await postgres_harness.start_turn()
    followup = await postgres_harness.signal(claim.lease.conversation_id, SignalKind.FOLLOWUP, "x")
    assert followup.signal_id is not None
    await postgres_harness.inbox.retract_signal(ANN, claim.lease.conversation_id, followup.signal_id)
    promotion = Promotion((followup.signal_id,), postgres_harness.ids.turn(), "x")
    ending = replace(closing(claim, seen_inbox=claim.inbox_seq + 2, promote=promotion), usage=(USAGE,))

    with pytest.raises(InboxMoved):
        await postgres_harness.timelines.commit(claim.lease, ending)

    conversation = await roles.superuser.fetchrow(
        "SELECT next_seq, state, event_cursor FROM conversation WHERE id = $1", claim.lease.conversation_id
    )
    assert conversation is not None
    assert dict(conversation) == {"next_seq": 1, "state": "running", "event_cursor": "0-0"}
    for table in ("block", "usage_event"):
        query = f"SELECT count(*) FROM {table} WHERE conversation_id = $1"
        assert await roles.superuser.fetchval(query, claim.lease.conversation_id) == 0


async def test_a_repeated_commit_succeeds_only_once_the_standby_has_it(
    postgres_harness: Harness, postgres_server: EmbeddedPostgres
) -> None:
    claim = await postgres_harness.start_turn()
    blocks = think(claim, "a")

    async def commit_within_limit() -> None:
        async with asyncio.timeout(CONFIRMED_S):
            await postgres_harness.timelines.commit(claim.lease, commit(claim, blocks))

    with without_standby(postgres_server):
        with pytest.raises(TimeoutError):
            for _ in range(TRIES):
                await commit_within_limit()
                blocks = think(claim, "more", after=blocks)
        with pytest.raises(TimeoutError):
            await commit_within_limit()

    await commit_within_limit()


async def test_an_ended_turn_is_not_closed_twice(postgres_harness: Harness) -> None:
    claim = await postgres_harness.start_turn()
    first = closing(claim, seen_inbox=claim.inbox_seq)
    await postgres_harness.timelines.commit(claim.lease, first)

    with pytest.raises(Conflict):
        await postgres_harness.timelines.commit(
            claim.lease, closing(claim, seen_inbox=claim.inbox_seq, after=first.blocks)
        )


@pytest.mark.parametrize(
    ("effect", "settled"), [(Effect.IRREVERSIBLE, "ambiguous"), (Effect.IDEMPOTENT, "failed"), (Effect.PURE, "failed")]
)
async def test_no_call_of_an_ended_turn_is_still_intended(
    postgres_harness: Harness, roles: Roles, effect: Effect, settled: str
) -> None:
    claim = await postgres_harness.start_turn()
    call = EffectChange(postgres_harness.ids.call(), "io.mail", "h", effect, EffectState.INTENDED)
    begun = think(claim, "a")
    await postgres_harness.timelines.commit(claim.lease, replace(commit(claim, begun), effects=(call,)))

    await postgres_harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq, after=begun))

    query = "SELECT state FROM tool_effect WHERE call_id = $1"
    assert await roles.superuser.fetchval(query, call.call_id) == settled


async def test_the_ledgers_equal_the_commit(postgres_harness: Harness, roles: Roles) -> None:
    claim = await postgres_harness.start_turn()
    call_id = postgres_harness.ids.call()
    effect = EffectChange(call_id, "io.mail", "h", Effect.IRREVERSIBLE, EffectState.INTENDED)
    blocks = think(claim, "a")
    await postgres_harness.timelines.commit(
        claim.lease, replace(commit(claim, blocks), usage=(USAGE,), effects=(effect,))
    )
    committed, known = replace(effect, state=EffectState.COMMITTED), replace(effect, state=EffectState.AMBIGUOUS)
    await postgres_harness.timelines.commit(
        claim.lease, replace(commit(claim, think(claim, "b", after=blocks)), effects=(committed, known))
    )

    effects = await roles.superuser.fetch("SELECT state, effect, tool_id FROM tool_effect WHERE call_id = $1", call_id)
    usage = await roles.superuser.fetch(
        "SELECT cache_write_tokens, estimated, role FROM usage_event WHERE turn_id = $1", claim.turn_id
    )
    assert [dict(row) for row in effects] == [{"state": "ambiguous", "effect": "irreversible", "tool_id": "io.mail"}]
    assert [dict(row) for row in usage] == [{"cache_write_tokens": 1, "estimated": True, "role": "decision"}]


async def test_a_commit_without_blocks_moves_the_cursor(postgres_harness: Harness, roles: Roles) -> None:
    claim = await postgres_harness.start_turn()

    assert await postgres_harness.timelines.commit(claim.lease, commit(claim, ())) == claim.inbox_seq

    query = "SELECT event_cursor FROM conversation WHERE id = $1"
    assert await roles.superuser.fetchval(query, claim.lease.conversation_id) == "1-7"


async def test_an_end_that_has_not_seen_a_signal_leaves_nothing(postgres_harness: Harness, roles: Roles) -> None:
    claim = await postgres_harness.start_turn()
    ending = replace(closing(claim, seen_inbox=claim.inbox_seq), usage=(USAGE,))
    await postgres_harness.signal(claim.lease.conversation_id, SignalKind.FOLLOWUP, "x")

    with pytest.raises(InboxMoved) as moved:
        await postgres_harness.timelines.commit(claim.lease, ending)

    assert moved.value.inbox_seq == claim.inbox_seq + 1
    for table in ("block", "usage_event"):
        query = f"SELECT count(*) FROM {table} WHERE conversation_id = $1"
        assert await roles.superuser.fetchval(query, claim.lease.conversation_id) == 0


async def test_an_end_whose_answer_was_lost_can_be_repeated(postgres_harness: Harness, roles: Roles) -> None:
    claim = await postgres_harness.start_turn()
    ending = replace(closing(claim, seen_inbox=claim.inbox_seq), usage=(USAGE,))
    await postgres_harness.timelines.commit(claim.lease, ending)
    await postgres_harness.say("Next.", claim.lease.conversation_id)

    await postgres_harness.timelines.commit(claim.lease, ending)

    query = "SELECT count(*) FROM usage_event WHERE conversation_id = $1"
    assert await roles.superuser.fetchval(query, claim.lease.conversation_id) == 1


async def test_turns_start_while_a_migration_adds_columns(postgres_harness: Harness, roles: Roles) -> None:
    """The driver knows the columns of a row that a function returns from an earlier call. When they have changed, the
    call fails as if the server were away, and a retry succeeds."""
    claim = await postgres_harness.start_turn()
    conversation_id, turn_id = claim.lease.conversation_id, claim.turn_id
    assert turn_id is not None
    blocks = think(claim, "a")
    await postgres_harness.timelines.commit(claim.lease, commit(claim, blocks))
    where = ANN, conversation_id, turn_id
    await postgres_harness.timelines.load_start(*where)

    for table in ("turn", "block", "feedback"):
        await roles.superuser.execute(f"ALTER TABLE {table} ADD COLUMN mood text NOT NULL DEFAULT 'good'")

    start = await RetryPolicy((0.0,)).call(lambda: postgres_harness.timelines.load_start(*where))
    assert (start.turn.id, start.blocks) == (turn_id, blocks)
    assert await postgres_harness.timelines.load_recent_blocks(ANN, conversation_id) == blocks


class TestPostgresTimelines(TimelinesContract, RecentBlocksContract):
    @pytest.fixture
    def harness(self, postgres_harness: Harness) -> Harness:
        return postgres_harness


class TestMemoryTimelines(TimelinesContract, RecentBlocksContract):
    @pytest.fixture
    def harness(self, memory_harness: Harness) -> Harness:
        return memory_harness
