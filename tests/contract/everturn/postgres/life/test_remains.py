"""Every table that names conversations is looked into, and an erasure leaves nothing in any."""

from dataclasses import replace

from everturn.conversations.postgres import PostgresConversations
from everturn.core.ids import CallId, ConversationId
from everturn.feedback.model import Feedback, Reaction
from everturn.lifecycle.postgres_erasure import PostgresRemainingRows
from everturn.memory.postgres_search import PostgresSnippetIndex
from everturn.memory.search import EmbeddedSnippet, IndexJob
from everturn.timeline.sources import SourceDraft, merge_sources
from everturn.timeline.turns import SignalKind
from everturn.turns.approvals import ApprovalRequest, approval_id_of
from everturn.turns.commits import Effect, EffectChange, EffectState, UsageEvent
from everturn.turns.inbox import IdempotencyKey
from everturn_testing.core import BEGINNING
from everturn_testing.database_roles import Roles
from everturn_testing.memory.search_contract import ENCODER, point, said
from everturn_testing.turns.stage import ANN, Stage, commit, think, turn_of


async def test_an_erasure_leaves_no_row_in_any_table(roles: Roles, postgres_stage: Stage) -> None:
    stage, rows = postgres_stage, PostgresRemainingRows(roles.ingress)
    receipt = await stage.say("all", uploads=(stage.upload(),), key=IdempotencyKey("m", "remains", "h"))
    conversation_id = receipt.conversation_id
    claim = await stage.claim(conversation_id)
    await stage.signal(conversation_id, SignalKind.STEER, "so")
    sources = merge_sources({}, [SourceDraft("A", "https://example.org", text="x")]).changes
    usage = UsageEvent("m", "decision", 1, 1, 0, 0, 0.1, estimated=False)
    effect = EffectChange(CallId("call_1"), "t.x", "h", Effect.PURE, EffectState.COMMITTED)
    asked = ApprovalRequest(approval_id_of(CallId("call_1")), CallId("call_1"), "t.x", "h", BEGINNING)
    ledgers = {"sources": sources, "usage": (usage,), "effects": (effect,), "requests": (asked,)}
    full = replace(commit(claim, think(claim, "x")), **ledgers)
    await stage.timelines.commit(claim.lease, full)
    await stage.give_feedback(ANN, conversation_id, Feedback(turn_of(receipt), "user", Reaction.OK, "", BEGINNING))
    job = IndexJob(ANN, conversation_id, turn_of(receipt), 1)
    embedded = EmbeddedSnippet(said("x"), point(1.0))
    await PostgresSnippetIndex(roles.worker).save_snippets(ANN, job, [embedded], encoder=ENCODER)
    before = await rows.count_rows(conversation_id)

    await PostgresConversations(roles.ingress).erase(ANN, conversation_id)

    after = await rows.count_rows(conversation_id)
    assert [table for table, count in before.items() if count == 0] == []
    assert [table for table, count in after.items() if count] == []
    assert set(after) >= {"block", "turn", "lease", "snippet", "idempotency", "conversation"}


async def test_objects_that_rows_name_are_told_across_owners(roles: Roles, postgres_stage: Stage) -> None:
    upload = postgres_stage.upload()
    await postgres_stage.say("x", uploads=(upload,))

    rows = PostgresRemainingRows(roles.ingress)

    assert upload.object_key in await rows.load_named_objects(ConversationId("conv_x"))
