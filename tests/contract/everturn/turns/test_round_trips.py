"""How many calls to Postgres the steps of a message make. Each costs both sides together a third of a millisecond."""

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from everturn.conversations.postgres import PostgresConversations
from everturn.core.ids import CallId
from everturn.memory.postgres_search import PostgresSnippetIndex
from everturn.postgres.pool import Connection
from everturn.queue.model import QueuePosition, WaitingTurn
from everturn.turns.inbox import IdempotencyKey
from everturn.turns.model import Effect, EffectChange, EffectState, UsageEvent
from everturn.turns.postgres_reading import PostgresTurns
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import Harness, closing, commit, think

USAGE = UsageEvent("m", "decision", 10, 5, 3, 1, 0.25, True)
EFFECT = EffectChange(CallId("call_1"), "io.mail", "h", Effect.PURE, EffectState.COMMITTED)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements sent so far, in order."""
    sent: list[str] = []
    run = Connection._run

    async def count(self: Connection, statement: Coroutine[Any, Any, Any]) -> Any:
        frame = statement.cr_frame
        sent.append(str(frame.f_locals.get("query") if frame else ""))
        return await run(self, statement)

    monkeypatch.setattr(Connection, "_run", count)
    return sent


@asynccontextmanager
async def at_most(calls: list[str], count: int) -> AsyncIterator[None]:
    calls.clear()
    yield
    assert len(calls) <= count, calls


async def test_calls_of_a_turn(postgres_harness: Harness, roles: Roles, calls: list[str]) -> None:
    harness = postgres_harness
    first = await harness.start_turn()
    await harness.timelines.commit(first.lease, closing(first, seen_inbox=first.inbox_seq))
    await harness.leases.release(first.lease, requeue=False)
    conversation_id = first.lease.conversation_id
    turns, conversations = PostgresTurns(roles.ingress), PostgresConversations(roles.ingress)

    async with at_most(calls, 6):  # with begin and commit
        await turns.load_page(harness.principal, conversation_id)

    key = IdempotencyKey("messages", harness.ids.call(), "hash")
    async with at_most(calls, 1):
        await harness.say("And then?", conversation_id, key=key, uploads=(harness.upload(),))

    async with at_most(calls, 1):
        status = await turns.load_status(harness.principal, conversation_id)
    assert status.waiting == WaitingTurn(status.open_turn_id, QueuePosition(0))

    async with at_most(calls, 1):
        await conversations.load(harness.principal, conversation_id)

    async with at_most(calls, 1):
        claim = await harness.claim(conversation_id)
    assert (await turns.load_status(harness.principal, conversation_id)).waiting is None

    assert claim.turn_id is not None
    async with at_most(calls, 1):
        await harness.timelines.load_start(harness.principal, conversation_id, claim.turn_id)

    async with at_most(calls, 1):
        await harness.timelines.commit(claim.lease, commit(claim, think(claim, "a")))

    async with at_most(calls, 1):
        end = closing(claim, seen_inbox=claim.inbox_seq, after=think(claim, "a"))
        await harness.timelines.commit(claim.lease, replace(end, usage=(USAGE,), effects=(EFFECT,)))

    async with at_most(calls, 1):
        await harness.leases.release_announced(claim.lease, claim.turn_id, claim.cursor)


async def test_calls_of_the_index(postgres_harness: Harness, roles: Roles, calls: list[str]) -> None:
    claim = await postgres_harness.start_turn()
    await postgres_harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
    index = PostgresSnippetIndex(roles.worker)

    async with at_most(calls, 3):
        (job,) = await index.claim_turns(1)
        await index.load_texts(job.principal, job.conversation_id, job.turn_id)
        assert await index.save_snippets(job.principal, job, (), encoder="any")
