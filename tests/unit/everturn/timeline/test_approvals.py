"""Which approvals a turn requested, and how long it waited, derived from its blocks."""

from everturn.core.ids import CallId, TurnId
from everturn.timeline.blocks import (
    ApprovalOutcomeBody,
    ApprovalRequestBody,
    Block,
    BlockDraft,
    BlockType,
    Body,
    chain_blocks,
)
from everturn.timeline.progress import fold_progress
from everturn.turns.model import approval_id_of

ONE, TWO = CallId("call_1"), CallId("call_2")


def ask(call_id: CallId, second: int) -> BlockDraft:
    body = ApprovalRequestBody(
        approval_id=approval_id_of(call_id), tool_id="mail.send", params={}, args_hash="0" * 64, expires_at="later"
    )
    return draft(BlockType.APPROVAL_REQUEST, call_id, body, second)


def settle(call_id: CallId, second: int) -> BlockDraft:
    body = ApprovalOutcomeBody(approval_id=approval_id_of(call_id), state="approved")
    return draft(BlockType.APPROVAL_OUTCOME, call_id, body, second)


def draft(kind: BlockType, call_id: CallId, body: Body, second: int) -> BlockDraft:
    ts = f"2026-03-01T12:00:{second:02}.000Z"
    return BlockDraft(TurnId("turn_1"), 1, kind, "ar:x", body, ts, call_id=call_id)


def chain(*drafts: BlockDraft) -> tuple[Block, ...]:
    return chain_blocks(drafts, next_seq=1, last_hash="")


def test_a_question_is_open_until_its_outcome() -> None:
    questions = fold_progress(chain(ask(ONE, 1), ask(TWO, 1), settle(TWO, 5))).questions

    assert [(call_id, each.outcome is None) for call_id, each in questions.items()] == [(ONE, True), (TWO, False)]


def test_time_in_which_two_answers_were_waited_for_counts_once() -> None:
    blocks = chain(ask(ONE, 10), ask(TWO, 10), settle(TWO, 20), settle(ONE, 25))

    assert fold_progress(blocks).count_waited_s() == 15.0


def test_waits_one_after_another_add_up() -> None:
    assert fold_progress(chain(ask(ONE, 10), settle(ONE, 20), ask(TWO, 30), settle(TWO, 35))).count_waited_s() == 15.0


def test_a_clock_going_back_removes_no_tokens() -> None:
    assert fold_progress(chain(ask(ONE, 30), settle(ONE, 20))).count_waited_s() == 0.0
