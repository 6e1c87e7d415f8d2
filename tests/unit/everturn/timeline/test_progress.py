"""Each row of the table "killed, found, resume does", and the steps of a turn without a crash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.core.ids import CallId, SignalId, TurnId
from everturn.timeline.blocks import (
    ApprovalOutcomeBody,
    ApprovalRequestBody,
    AttemptBody,
    Block,
    BlockDraft,
    BlockType,
    Body,
    CompletionBody,
    DeferralBody,
    EventBody,
    ExitBody,
    NoticeBody,
    PlanAckBody,
    RawDecisionBody,
    RoundStartBody,
    SignalBody,
    ThinkingBody,
    TitleBody,
    ToolCallBody,
    ToolCodeBody,
    ToolResultBody,
    UnknownBody,
    chain_blocks,
)
from everturn.timeline.progress import (
    INTERRUPTED,
    PENDING,
    BeginTurn,
    ExecuteCalls,
    FinishTurn,
    GenerateRound,
    TurnEnded,
    fold_progress,
)
from everturn.timeline.turns import Outcome, TurnUsage
from everturn.turns.model import approval_id_of
from everturn_testing.timeline import NOW, TimelineBuilder


@pytest.fixture
def turn() -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Hello.")
    return timeline


def fail_round(timeline: TimelineBuilder) -> None:
    timeline.start_round()
    timeline.add(BlockType.DECISION_RAW, "raw", RawDecisionBody(text="?", code="x"))
    timeline.add(BlockType.NOTICE, "notice", NoticeBody(code="x", text="Fix it."))


def test_an_interrupted_reply_is_no_failed_reply(turn: TimelineBuilder) -> None:
    fail_round(turn)
    turn.start_round()
    turn.add(BlockType.DECISION_RAW, "raw", RawDecisionBody(text="<channel:action>{", code=INTERRUPTED))

    assert fold_progress(turn.blocks).failure_streak == ()
    assert fold_progress(turn.blocks).next_step() == GenerateRound(3)


def test_an_empty_turn_is_opened() -> None:
    assert fold_progress(()).next_step() == BeginTurn()


def test_an_opened_turn_begins_with_its_first_round(turn: TimelineBuilder) -> None:
    assert fold_progress(turn.blocks).next_step() == GenerateRound(1)


def test_killed_while_streaming_the_round_is_generated_again(turn: TimelineBuilder) -> None:
    turn.start_round()

    assert fold_progress(turn.blocks).next_step() == GenerateRound(1)


def test_signals_folded_into_a_round_do_not_make_it_a_decided_one(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.add(BlockType.USER_FOLLOWUP, "ref", SignalBody(signal_id=SignalId("sig_1"), text="more"))

    assert fold_progress(turn.blocks).next_step() == GenerateRound(1)


def test_killed_in_a_tool_its_call_is_run(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.call("call_1", "demo.run", {"a": 1}, code="print()")

    step = fold_progress(turn.blocks).next_step()

    assert isinstance(step, ExecuteCalls)
    (pending,) = step.calls
    assert (step.round, pending.code) == (1, "print()")
    assert pending.body == ToolCallBody(tool_id="demo.run", params={"a": 1})
    assert pending.block.call_id == "call_1"


def test_only_calls_without_a_result_are_run_in_their_order(turn: TimelineBuilder) -> None:
    turn.start_round()
    for name in ("call_1", "call_2", "call_3"):
        turn.call(name, "demo.echo", {})
    turn.result("call_2", "demo.echo", "done")

    step = fold_progress(turn.blocks).next_step()

    assert isinstance(step, ExecuteCalls)
    assert [pending.block.call_id for pending in step.calls] == ["call_1", "call_3"]


def test_killed_after_the_results_the_next_round_is_generated(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.call("call_1", "demo.echo", {})
    turn.result("call_1", "demo.echo", "done")

    assert fold_progress(turn.blocks).next_step() == GenerateRound(2)


def test_an_answer_that_did_not_end_the_turn_is_followed_by_a_round(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.add(BlockType.COMPLETION, "ref", CompletionBody(text="One."))

    assert fold_progress(turn.blocks).next_step() == GenerateRound(2)


PENDING_ANSWER = AttemptBody(text="Done.", reason=PENDING)


def test_an_answer_beside_calls_ends_the_turn_once_they_have_run(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.call("call_1", "demo.echo", {})
    turn.add(BlockType.COMPLETION_ATTEMPT, "attempt", PENDING_ANSWER)
    assert isinstance(fold_progress(turn.blocks).next_step(), ExecuteCalls)

    turn.result("call_1", "demo.echo", "done")

    step = fold_progress(turn.blocks).next_step()
    assert isinstance(step, FinishTurn)
    assert (step.round, step.attempt) == (1, PENDING_ANSWER)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (BlockType.COMPLETION, CompletionBody(text="Done.")),
        (BlockType.DEFERRAL, DeferralBody(reason="signal", text="Go on.")),
    ],
)
def test_an_answer_that_was_settled_does_not_end_the_turn_again(
    turn: TimelineBuilder, kind: BlockType, body: CompletionBody | DeferralBody
) -> None:
    turn.start_round()
    turn.add(BlockType.COMPLETION_ATTEMPT, "attempt", PENDING_ANSWER)
    turn.add(kind, "settled", body)

    assert fold_progress(turn.blocks).next_step() == GenerateRound(2)


def test_an_interrupted_answer_does_not_end_the_turn(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.add(BlockType.COMPLETION_ATTEMPT, "attempt", AttemptBody(text="As f", reason="steered"))

    assert fold_progress(turn.blocks).next_step() == GenerateRound(2)


def test_killed_after_the_end_nothing_is_left_to_do(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.call("call_1", "demo.echo", {})
    exit_body = ExitBody(outcome=Outcome.CANCELLED, rounds=1, usage=TurnUsage(), elapsed_ms=1)
    turn.add(BlockType.EXIT, "ref", exit_body)

    assert fold_progress(turn.blocks).next_step() == TurnEnded()


def test_a_round_is_sealed_by_its_decision(turn: TimelineBuilder) -> None:
    assert fold_progress(turn.blocks).sealed_round == 0
    turn.start_round()
    assert fold_progress(turn.blocks).sealed_round == 0

    turn.add(BlockType.THINKING, "ref", ThinkingBody(text="Hm."))

    assert fold_progress(turn.blocks).sealed_round == 1


def test_failures_are_counted_back_to_the_last_good_round(turn: TimelineBuilder) -> None:
    assert fold_progress(turn.blocks).failure_streak == ()
    fail_round(turn)
    assert len(fold_progress(turn.blocks).failure_streak) == 1
    turn.start_round()
    turn.call("call_1", "demo.echo", {})
    turn.result("call_1", "demo.echo", "done")
    assert fold_progress(turn.blocks).failure_streak == ()
    fail_round(turn)
    fail_round(turn)

    assert len(fold_progress(turn.blocks).failure_streak) == 2


def test_a_begun_round_does_not_end_the_failure_streak(turn: TimelineBuilder) -> None:
    fail_round(turn)
    turn.start_round()

    assert len(fold_progress(turn.blocks).failure_streak) == 1


def test_a_result_that_only_a_newer_version_can_read_is_one(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.call("call_1", "demo.echo", {})
    turn.add(BlockType.TOOL_RESULT, "ref", UnknownBody(), call_id=CallId("call_1"))

    assert fold_progress(turn.blocks).next_step() == GenerateRound(2)


QUESTION = ApprovalRequestBody(
    approval_id=approval_id_of(CallId("call_1")), tool_id="demo.echo", params={}, args_hash="0" * 64, expires_at="later"
)
BLOCKS: tuple[tuple[BlockType, Body], ...] = (
    (BlockType.ROUND_START, RoundStartBody(limit=15)),
    (BlockType.STAGE_GATE, TitleBody(title="Title")),
    (BlockType.THINKING, ThinkingBody(text="Hm.")),
    (BlockType.DECISION_RAW, RawDecisionBody(text="?", code="x")),
    (BlockType.DECISION_RAW, RawDecisionBody(text="?", code=INTERRUPTED)),
    (BlockType.TOOL_CODE, ToolCodeBody(text="print()")),
    (BlockType.TOOL_CALL, ToolCallBody(tool_id="demo.echo", params={})),
    (BlockType.TOOL_RESULT, ToolResultBody(tool_id="demo.echo", status="ok", text="done")),
    (BlockType.APPROVAL_REQUEST, QUESTION),
    (BlockType.APPROVAL_OUTCOME, ApprovalOutcomeBody(approval_id=QUESTION.approval_id, state="approved")),
    (BlockType.COMPLETION, CompletionBody(text="Done.")),
    (BlockType.COMPLETION_ATTEMPT, PENDING_ANSWER),
    (BlockType.DEFERRAL, DeferralBody(reason="signal", text="Go on.")),
    (BlockType.USER_FOLLOWUP, SignalBody(signal_id=SignalId("sig_1"), text="more")),
    (BlockType.USER_STEER, SignalBody(signal_id=SignalId("sig_1"), text="stop")),
    (BlockType.EXTERNAL_EVENT, EventBody(signal_id=SignalId("sig_1"), kind="form", text="x", credit=2)),
    (BlockType.PLAN_ACK, PlanAckBody(plan_id="plan_1", text="done")),
    (BlockType.EXIT, ExitBody(outcome=Outcome.COMPLETED, rounds=1, usage=TurnUsage(), elapsed_ms=1)),
)


def build_block(round_number: int, which: int, call_id: CallId) -> Block:
    kind, body = BLOCKS[which]
    draft = BlockDraft(TurnId("turn_1"), round_number, kind, "ref", body, NOW, call_id=call_id)
    return chain_blocks([draft], next_seq=1, last_hash="")[0]


blocks = st.builds(
    build_block,
    st.integers(0, 5),
    st.integers(0, len(BLOCKS) - 1),
    st.sampled_from([CallId("call_1"), CallId("call_2")]),
)


@given(st.lists(blocks, max_size=40), st.integers(0, 40))
def test_a_worker_that_resumes_a_turn_finds_what_the_one_before_knew(turn_blocks: list[Block], killed_at: int) -> None:
    running = fold_progress(turn_blocks[:killed_at])
    running.next_step()
    running.extend(turn_blocks[killed_at:])
    resumed = fold_progress(turn_blocks)

    assert running == resumed
    assert running.next_step() == resumed.next_step()
