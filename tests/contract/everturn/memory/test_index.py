"""The index of snippets in Postgres: the contract, takeovers, erasures, and which texts it reads."""

from pathlib import Path

import pytest

from chat_proc.memory.indexer import STEP_TIMEOUT_S
from everturn.conversations.postgres import PostgresConversations
from everturn.memory.search import EmbeddedSnippet
from everturn.timeline.blocks import BlockDraft, BlockType, CompletionBody, PromptBody, ThinkingBody, chain_blocks
from everturn.turns.postgres_approvals import PostgresApprovals
from everturn_testing.database_roles import Roles
from everturn_testing.memory.search_contract import ENCODER, MemoryDesk, SnippetIndexContract, point, said
from everturn_testing.turns.approvals_contract import ask
from everturn_testing.turns.harness import TS, commit


class TestPostgresSnippetIndex(SnippetIndexContract):
    """The contract."""


async def test_a_turn_of_a_dead_worker_is_claimed_again_and_counted(desk: MemoryDesk, roles: Roles) -> None:
    job = await desk.job_of(await desk.end_turn())
    waits = []
    for expected in (2, 3):
        waits.append(await roles.superuser.fetchval(
            "UPDATE turn SET index_due_at = now() - interval '1 s' FROM turn AS before"
            " WHERE turn.id = $1 AND before.id = turn.id RETURNING before.index_due_at - now()",
            job.turn_id,
        ))  # fmt: skip
        (again,) = await desk.index.claim_turns(10)
        assert (again.turn_id, again.tries) == (job.turn_id, expected)

    first, second = (wait.total_seconds() for wait in waits)
    assert first > STEP_TIMEOUT_S  # a turn is not claimed again while it may still be indexed
    assert second == pytest.approx(2 * first, rel=0.1)


async def test_a_turn_that_waits_for_a_person_is_not_found_before_it_ends(desk: MemoryDesk, roles: Roles) -> None:
    claim = await desk.harness.start_turn()
    approvals = PostgresApprovals(roles.worker)
    await ask(desk.harness, approvals, claim)
    assert await approvals.try_park(claim.lease)

    assert claim.turn_id not in [job.turn_id for job in await desk.index.claim_turns(100)]


async def test_a_conversation_erased_while_it_is_indexed_leaves_no_snippet(desk: MemoryDesk, roles: Roles) -> None:
    job = await desk.job_of(await desk.end_turn())
    await PostgresConversations(roles.ingress).erase(desk.harness.principal, job.conversation_id)

    saved = await desk.index.save_snippets(
        job.principal, job, [EmbeddedSnippet(said("gone"), point(1.0))], encoder=ENCODER
    )

    assert not saved
    assert await roles.superuser.fetchval("SELECT count(*) FROM snippet WHERE turn_id = $1", job.turn_id) == 0


async def test_an_erasure_takes_the_snippets_with_it(desk: MemoryDesk, roles: Roles) -> None:
    job = await desk.remember((said("one"), point(1.0)), (said("two"), None))

    erasure = await PostgresConversations(roles.ingress).erase(desk.harness.principal, job.conversation_id)

    assert erasure.rows["snippet"] == 2
    assert await roles.superuser.fetchval("SELECT count(*) FROM snippet WHERE turn_id = $1", job.turn_id) == 0


async def test_the_documented_statement_indexes_turns_again(desk: MemoryDesk, roles: Roles, repository: Path) -> None:
    job = await desk.remember((said("one"), point(1.0)))
    page = (repository / "docs" / "operate.md").read_text()
    _, _, statements = page.partition("## Change the embedder")[2].partition("```sql\n")

    await roles.superuser.execute("SET SESSION AUTHORIZATION everturn_owner")
    try:
        await roles.superuser.execute(statements.partition("```")[0].replace("'2026-07-01'", "'infinity'"))
    finally:
        await roles.superuser.execute("RESET SESSION AUTHORIZATION")

    assert job.turn_id in [again.turn_id for again in await desk.index.claim_turns(100)]
    may = "has_column_privilege('everturn_dispatch', 'turn', 'indexed_at', 'UPDATE')"
    assert not await roles.superuser.fetchval(f"SELECT {may}")


async def test_texts_are_read_up_to_a_number_of_bytes(desk: MemoryDesk) -> None:
    claim = await desk.harness.start_turn()
    turn = claim.turn_id
    assert turn is not None
    bodies = [PromptBody(text="why"), ThinkingBody(text="hm"), *[CompletionBody(text="x" * 600_000)] * 3]
    kinds = [BlockType.USER_PROMPT, BlockType.THINKING, *[BlockType.COMPLETION] * 3]
    drafts = [BlockDraft(turn, 1, kind, "ar:x", body, TS) for kind, body in zip(kinds, bodies, strict=True)]
    blocks = chain_blocks(drafts, next_seq=claim.next_seq, last_hash=claim.last_hash)
    await desk.harness.timelines.commit(claim.lease, commit(claim, blocks))

    found = await desk.index.load_texts(desk.harness.principal, claim.lease.conversation_id, turn)

    assert found == (blocks[0], blocks[2], blocks[3])
