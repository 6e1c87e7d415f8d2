"""An erasure leaves nothing in any table that names conversations; which object keys no row of any tenant names."""

from dataclasses import replace

import pytest

from everturn.conversations.postgres import PostgresConversations
from everturn.core.errors import Invalid
from everturn.core.ids import CallId, ConversationId
from everturn.feedback.model import Feedback, Reaction
from everturn.files.model import exchange_key, manifest_key
from everturn.lifecycle.orphans import MAX_KEYS
from everturn.lifecycle.postgres_erasure import PostgresObjectRows, PostgresRemainingRows
from everturn.mcp_connections.connections import ConnectRequest, ServerKey, hash_state
from everturn.mcp_connections.postgres import PostgresConnections
from everturn.memory.postgres_search import PostgresSnippetIndex
from everturn.memory.search import EmbeddedSnippet, IndexJob
from everturn.timeline.sources import SourceDraft, merge_sources
from everturn.timeline.turns import SignalKind
from everturn.turns.inbox import IdempotencyKey
from everturn.turns.model import ApprovalRequest, Effect, EffectChange, EffectState, UsageEvent, approval_id_of
from everturn.turns.postgres_detached import PostgresDetachedRuns
from everturn_testing.core import BEGINNING
from everturn_testing.database_roles import Roles
from everturn_testing.memory.search_contract import ENCODER, point, said
from everturn_testing.turns.detached_contract import build_start
from everturn_testing.turns.harness import ANN, Harness, commit, think, turn_of


async def test_an_erasure_leaves_no_row_in_any_table(roles: Roles, postgres_harness: Harness) -> None:
    harness, rows = postgres_harness, PostgresRemainingRows(roles.ingress)
    receipt = await harness.say("all", uploads=(harness.upload(),), key=IdempotencyKey("m", "remains", "h"))
    conversation_id = receipt.conversation_id
    claim = await harness.claim(conversation_id)
    await harness.signal(conversation_id, SignalKind.STEER, "so")
    sources = merge_sources({}, [SourceDraft("A", "https://example.org", text="x")]).changes
    usage = UsageEvent("m", "decision", 1, 1, 0, 0, 0.1, estimated=False)
    effect = EffectChange(CallId("call_1"), "t.x", "h", Effect.PURE, EffectState.COMMITTED)
    asked = ApprovalRequest(approval_id_of(CallId("call_1")), CallId("call_1"), "t.x", "h", BEGINNING)
    ledgers = {"sources": sources, "usage": (usage,), "effects": (effect,), "requests": (asked,)}
    full = replace(commit(claim, think(claim, "x")), **ledgers)
    await harness.timelines.commit(claim.lease, full)
    await harness.give_feedback(ANN, conversation_id, Feedback(turn_of(receipt), "user", Reaction.OK, "", BEGINNING))
    job = IndexJob(ANN, conversation_id, turn_of(receipt), 1)
    embedded = EmbeddedSnippet(said("x"), point(1.0))
    await PostgresSnippetIndex(roles.worker).save_snippets(ANN, job, [embedded], encoder=ENCODER)
    link = ConnectRequest(asked.id, conversation_id, hash_state("erased"), "Mail", b"sealed")
    await PostgresConnections(roles.worker).save_request(ANN, ServerKey("desk", "mail"), link)
    await PostgresDetachedRuns(roles.worker, owner="worker-1").save_start(claim.lease, build_start(claim))
    before = await rows.count_rows(conversation_id)

    await PostgresConversations(roles.ingress).erase(ANN, conversation_id)

    after = await rows.count_rows(conversation_id)
    assert [table for table, count in before.items() if count == 0] == []
    assert [table for table, count in after.items() if count] == []
    assert set(after) >= {"block", "turn", "lease", "snippet", "idempotency", "conversation"}


async def test_named_objects_are_found_across_owners(roles: Roles, postgres_harness: Harness) -> None:
    upload = postgres_harness.upload()
    await postgres_harness.say("x", uploads=(upload,))

    rows = PostgresRemainingRows(roles.ingress)

    assert upload.object_key in await rows.load_named_objects(ConversationId("conv_x"))


@pytest.fixture(params=["ingress", "worker"])
def rows(request: pytest.FixtureRequest, roles: Roles) -> PostgresObjectRows:
    """Run as each role that is allowed to."""
    return PostgresObjectRows(roles.ingress if request.param == "ingress" else roles.worker)


async def test_an_object_named_by_any_row_is_no_orphan(postgres_harness: Harness, rows: PostgresObjectRows) -> None:
    receipt = await postgres_harness.say(uploads=(postgres_harness.upload(),))
    (attachment,) = (await postgres_harness.timelines.load_turn(ANN, turn_of(receipt))).request.attachments
    kept = manifest_key(receipt.conversation_id, turn_of(receipt), 1)
    called = exchange_key(receipt.conversation_id, turn_of(receipt), "exec_1", 1)
    lost = [
        f"{receipt.conversation_id}/{'0' * 64}",
        manifest_key(receipt.conversation_id, postgres_harness.ids.turn(), 1),
        manifest_key(postgres_harness.ids.conversation(), turn_of(receipt), 1),
        exchange_key(receipt.conversation_id, postgres_harness.ids.turn(), "exec_1", 1),
    ]

    found = await rows.load_orphans([attachment.object_key, kept, called, *lost])

    assert sorted(found) == sorted(lost)


async def test_an_object_of_a_running_turn_is_no_orphan(postgres_harness: Harness, rows: PostgresObjectRows) -> None:
    claim = await postgres_harness.start_turn()
    conversation_id = claim.lease.conversation_id
    saved = f"{conversation_id}/{'0' * 64}"

    held = await rows.load_orphans([saved])
    await postgres_harness.expire_lease(conversation_id)
    run_out = await rows.load_orphans([saved])
    await postgres_harness.leases.release(claim.lease, requeue=True)

    assert (held, run_out) == ((), ())
    assert await rows.load_orphans([saved]) == (saved,)


async def test_a_question_has_a_bound(rows: PostgresObjectRows) -> None:
    assert await rows.load_orphans([]) == ()
    with pytest.raises(Invalid):
        await rows.load_orphans(["x"] * (MAX_KEYS + 1))
