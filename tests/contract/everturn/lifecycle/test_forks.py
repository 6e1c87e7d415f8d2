"""A fork is a complete conversation that shares only the bytes of files with its source."""

import asyncio
import re
from dataclasses import replace

import pytest

from everturn.conversations.postgres import PostgresConversations
from everturn.core.errors import Conflict, DatabaseFault, NotFound
from everturn.core.ids import ConversationId, TurnId
from everturn.events.cursor import EventCursor
from everturn.files.postgres import PostgresArtifacts
from everturn.lifecycle import postgres_forks as sql
from everturn.lifecycle.forks import ForkRequest
from everturn.lifecycle.postgres_forks import PostgresForks
from everturn.timeline.sources import SourceDraft, merge_sources
from everturn.timeline.turns import ExternalEvent, SignalKind
from everturn.turns.inbox import IdempotencyKey
from everturn.turns.postgres_approvals import PostgresApprovals
from everturn.turns.postgres_reading import PostgresTurns
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_testing.database_roles import Roles
from everturn_testing.timeline import first_broken_link
from everturn_testing.turns.approvals_contract import answer, ask
from everturn_testing.turns.harness import ANN, STRANGERS, Harness, closing, commit, think, turn_of


async def hold_conversation(harness: Harness, count: int = 2) -> tuple[ConversationId, list[TurnId]]:
    """Ended turns, each with a file, a block that names turn and file, and a source."""
    conversation_id, turns = None, []
    for n in range(count):
        upload = harness.upload(f"{n}.csv")
        receipt = await harness.say(f"No {n}", conversation_id, uploads=(upload,))
        conversation_id = receipt.conversation_id
        claim = await harness.claim(conversation_id)
        blocks = think(claim, f"see fi:{claim.turn_id}.user.attachments/{n}.csv, {upload.id}", "x")
        found = merge_sources({}, [SourceDraft("A page", f"https://example.org/{n}", text="long")])
        sources = found.changes if n == 0 else ()
        await harness.timelines.commit(claim.lease, replace(commit(claim, blocks), sources=sources))
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq, after=blocks))
        await harness.leases.mark_announced(claim.lease, turn_of(receipt), EventCursor(claim.lease.fence, 9))
        await harness.leases.release(claim.lease, requeue=False)
        turns.append(turn_of(receipt))
    assert conversation_id is not None
    return conversation_id, turns


async def test_a_fork_has_the_blocks_and_turns_under_ids_of_its_own(roles: Roles, postgres_harness: Harness) -> None:
    source, turns = await hold_conversation(postgres_harness)
    wish = ForkRequest(postgres_harness.ids.conversation())

    fork = await PostgresForks(roles.ingress).fork(ANN, source, wish, None)

    page = await PostgresTurns(roles.ingress).load_page(ANN, fork.conversation_id)
    blocks = await PostgresTimelines(roles.worker).load_recent_blocks(ANN, fork.conversation_id)
    assert (fork.turn_id, fork.turns, fork.blocks) == (turns[-1], 2, 6)
    assert [block.seq for block in blocks] == list(range(1, 7))
    assert first_broken_link(blocks) is None
    assert [len(record.blocks) for record in page.turns] == [3, 3]
    assert {block.turn_id for block in blocks} == {record.turn.id for record in page.turns}
    text = "".join(block.body_json + block.ref for block in blocks)
    assert not any(old in text for old in (source, *turns))
    assert all(record.turn.id in text for record in page.turns)
    assert page.turns[0].turn.request.text == "No 0"


async def test_files_of_a_fork_are_its_own_rows_over_shared_bytes(roles: Roles, postgres_harness: Harness) -> None:
    source, _ = await hold_conversation(postgres_harness)
    fork = await PostgresForks(roles.ingress).fork(ANN, source, ForkRequest(postgres_harness.ids.conversation()), None)

    page = await PostgresTurns(roles.ingress).load_page(ANN, fork.conversation_id)

    (attached,) = page.turns[0].turn.request.attachments
    row = await PostgresArtifacts(roles.worker).load(ANN, attached.id)
    assert row == attached
    assert row.turn_id == page.turns[0].turn.id
    assert f":{fork.conversation_id}:{row.turn_id}:" in row.rn
    assert row.object_key.startswith("conv_x/")
    assert attached.id in page.turns[0].blocks[0].body_json


async def test_a_fork_ends_with_the_named_turn(roles: Roles, postgres_harness: Harness) -> None:
    source, turns = await hold_conversation(postgres_harness, 3)
    wish = ForkRequest(postgres_harness.ids.conversation(), turns[0], "Another way")

    fork = await PostgresForks(roles.ingress).fork(ANN, source, wish, None)

    row = await PostgresConversations(roles.ingress).load(ANN, fork.conversation_id)
    assert (fork.turn_id, fork.turns, fork.blocks, row.title) == (turns[0], 1, 3, "Another way")
    sources = await PostgresTurns(roles.ingress).load_sources(ANN, fork.conversation_id)
    assert [(row.sid, row.url) for row in sources] == [(1, "https://example.org/0")]
    assert await PostgresTimelines(roles.worker).load_source_text(ANN, fork.conversation_id, 1) == "long"


async def test_a_busy_conversation_forks_up_to_its_last_ended_turn(roles: Roles, postgres_harness: Harness) -> None:
    source, turns = await hold_conversation(postgres_harness)
    receipt = await postgres_harness.say("more", source)
    claim = await postgres_harness.claim(source)
    await postgres_harness.timelines.commit(claim.lease, commit(claim, think(claim, "running")))
    forks = PostgresForks(roles.ingress)

    fork = await forks.fork(ANN, source, ForkRequest(postgres_harness.ids.conversation()), None)

    assert (fork.turn_id, fork.blocks) == (turns[-1], 6)
    with pytest.raises(Conflict):
        await forks.fork(ANN, source, ForkRequest(postgres_harness.ids.conversation(), turn_of(receipt)), None)
    await postgres_harness.timelines.commit(
        claim.lease, commit(claim, think(claim, "on", after=think(claim, "running")))
    )


async def test_a_fork_of_a_waiting_conversation_has_no_open_approval(roles: Roles, postgres_harness: Harness) -> None:
    source, turns = await hold_conversation(postgres_harness)
    receipt = await postgres_harness.say("send it", source)
    claim = await postgres_harness.claim(source)
    approvals = PostgresApprovals(roles.worker)
    approval_id = await ask(postgres_harness, approvals, claim)
    await approvals.try_park(claim.lease)

    forks = PostgresForks(roles.ingress)
    fork = await forks.fork(ANN, source, ForkRequest(postgres_harness.ids.conversation()), None)

    assert fork.turn_id == turns[-1]
    query = "SELECT count(*) FROM approval WHERE conversation_id = $1"
    assert await roles.superuser.fetchval(query, fork.conversation_id) == 0
    with pytest.raises(Conflict):
        await forks.fork(ANN, source, ForkRequest(postgres_harness.ids.conversation(), turn_of(receipt)), None)
    assert (await answer(postgres_harness, source, approval_id, SignalKind.APPROVE)).ring
    assert (await postgres_harness.claim(source)).turn_id == receipt.turn_id


async def test_a_fork_accepts_messages(roles: Roles, postgres_harness: Harness) -> None:
    source, _ = await hold_conversation(postgres_harness)
    fork = await PostgresForks(roles.ingress).fork(ANN, source, ForkRequest(postgres_harness.ids.conversation()), None)

    await postgres_harness.say("and now?", fork.conversation_id)
    claim = await postgres_harness.claim(fork.conversation_id)
    await postgres_harness.timelines.commit(claim.lease, commit(claim, think(claim, "on")))

    blocks = await PostgresTimelines(roles.worker).load_recent_blocks(ANN, fork.conversation_id)
    assert first_broken_link(blocks) is None
    assert (claim.next_seq, len(blocks)) == (7, 7)


async def test_signals_come_along_with_their_receipts(roles: Roles, postgres_harness: Harness) -> None:
    waiting = await hold_conversation(postgres_harness, 1)
    await postgres_harness.send_event(
        waiting[0], ExternalEvent("form", reactive=False), uploads=(postgres_harness.upload("late.csv"),)
    )
    receipt = await postgres_harness.say("go", waiting[0])
    claim = await postgres_harness.claim(waiting[0])
    await postgres_harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))

    fork = await PostgresForks(roles.ingress).fork(
        ANN, waiting[0], ForkRequest(postgres_harness.ids.conversation()), None
    )

    page = await PostgresTurns(roles.ingress).load_page(ANN, fork.conversation_id)
    (event,) = page.turns[-1].turn.request.events
    assert turn_of(receipt) != page.turns[-1].turn.id
    row = await PostgresArtifacts(roles.worker).load(ANN, event.attachments[0].id)
    assert row.filename == "late.csv"
    copied = await roles.superuser.fetch("SELECT * FROM signal WHERE conversation_id = $1", fork.conversation_id)
    assert [(row["id"], row["promoted_to"]) for row in copied] == [(event.id, page.turns[-1].turn.id)]


async def test_the_same_key_gives_the_same_fork_also_at_once(roles: Roles, postgres_harness: Harness) -> None:
    source, _ = await hold_conversation(postgres_harness)
    forks, key = PostgresForks(roles.ingress), IdempotencyKey("fork", f"key of {source}", "hash")

    made = await asyncio.gather(
        *(forks.fork(ANN, source, ForkRequest(postgres_harness.ids.conversation()), key) for _ in range(5))
    )

    assert len({fork.conversation_id for fork in made}) == 1


async def test_a_missing_conversation_is_not_forked(roles: Roles, postgres_harness: Harness) -> None:
    source, _ = await hold_conversation(postgres_harness, 1)
    empty = (await postgres_harness.say("waits")).conversation_id
    forks, fork_id = PostgresForks(roles.ingress), postgres_harness.ids.conversation()

    with pytest.raises(Conflict):
        await forks.fork(ANN, empty, ForkRequest(fork_id), None)
    with pytest.raises(NotFound):
        await forks.fork(ANN, source, ForkRequest(fork_id, postgres_harness.ids.turn()), None)
    for stranger in STRANGERS:
        with pytest.raises(NotFound):
            await forks.fork(stranger, source, ForkRequest(fork_id), None)
    with pytest.raises(NotFound):
        await PostgresConversations(roles.ingress).load(ANN, fork_id)


async def test_fork_blocks_can_not_be_added_to_an_existing_conversation(
    roles: Roles, postgres_harness: Harness
) -> None:
    source, _ = await hold_conversation(postgres_harness, 1)

    with pytest.raises(Exception, match="takes no copied block"):
        async with roles.ingress.transaction(ANN) as transaction:
            await transaction.execute(
                "SELECT append_fork_blocks($1, 4, '{t}', '{1}', '{x}', '{r}', '{c}', '{b}', '{t}', '{a}', '{t}', '{}')",
                source,
            )
    with pytest.raises(DatabaseFault, match="42501"):
        async with roles.ingress.transaction(ANN) as transaction:
            await transaction.execute("DELETE FROM block WHERE conversation_id = $1", source)


async def test_an_erased_source_leaves_its_fork_whole(roles: Roles, postgres_harness: Harness) -> None:
    source, _ = await hold_conversation(postgres_harness)
    forks, conversations = PostgresForks(roles.ingress), PostgresConversations(roles.ingress)

    fork = await forks.fork(ANN, source, ForkRequest(postgres_harness.ids.conversation()), None)
    erasure = await conversations.erase(ANN, source)

    blocks = await PostgresTimelines(roles.worker).load_recent_blocks(ANN, fork.conversation_id)
    named = await PostgresArtifacts(roles.worker).load_named_keys(ANN, ConversationId("conv_x"))
    assert len(blocks) == fork.blocks
    assert set(erasure.object_keys) <= named


NOT_COPIED = {
    "turn": {
        "attempt",
        "doorbell_at",
        "rings",
        "rung_at",
        "indexed_at",
        "index_due_at",
        "index_tries",
        "leased_s",
        "usage",
    },
    "artifact": set(),
    "signal": set(),
}
"""What belongs to the work on a turn, and is reset in a copy."""


@pytest.mark.parametrize(
    ("table", "statement"),
    [("turn", sql.COPY_TURN), ("artifact", sql.COPY_ARTIFACTS), ("signal", sql.COPY_SIGNAL)],
)
async def test_every_column_is_copied_or_reset(roles: Roles, table: str, statement: str) -> None:
    columns = await roles.superuser.fetch(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'public' AND table_name = $1", table
    )
    match = re.search(r"INSERT INTO \w+ \((.*?)\)", statement, re.DOTALL)
    assert match is not None

    named = {name.strip() for name in match[1].split(",")}

    assert named | NOT_COPIED[table] == {row["column_name"] for row in columns}
