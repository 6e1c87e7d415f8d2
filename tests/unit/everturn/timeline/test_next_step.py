"""Each row of the table "killed, found, resume does", and the steps of a turn without a crash."""

import pytest

from everturn.core.ids import SignalId
from everturn.timeline.blocks import BlockType
from everturn.timeline.bodies import (
    AttemptBody,
    CompletionBody,
    DeferralBody,
    ExitBody,
    NoticeBody,
    RawDecisionBody,
    SignalBody,
    ThinkingBody,
    ToolCallBody,
)
from everturn.timeline.next_step import (
    INTERRUPTED,
    PENDING,
    BeginTurn,
    ExecuteCalls,
    FinishTurn,
    GenerateRound,
    TurnEnded,
    failure_streak,
    next_step,
    sealed_round,
)
from everturn.timeline.turns import Outcome, TurnUsage
from everturn_testing.timeline import TimelineBuilder


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

    assert failure_streak(turn.blocks) == ()
    assert next_step(turn.blocks) == GenerateRound(3)


def test_an_empty_turn_is_opened() -> None:
    assert next_step(()) == BeginTurn()


def test_an_opened_turn_begins_with_its_first_round(turn: TimelineBuilder) -> None:
    assert next_step(turn.blocks) == GenerateRound(1)


def test_killed_while_streaming_the_round_is_generated_again(turn: TimelineBuilder) -> None:
    turn.start_round()

    assert next_step(turn.blocks) == GenerateRound(1)


def test_signals_folded_into_a_round_do_not_make_it_a_decided_one(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.add(BlockType.USER_FOLLOWUP, "ref", SignalBody(signal_id=SignalId("sig_1"), text="more"))

    assert next_step(turn.blocks) == GenerateRound(1)


def test_killed_in_a_tool_its_call_is_run(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.call("call_1", "demo.run", {"a": 1}, code="print()")

    step = next_step(turn.blocks)

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

    step = next_step(turn.blocks)

    assert isinstance(step, ExecuteCalls)
    assert [pending.block.call_id for pending in step.calls] == ["call_1", "call_3"]


def test_killed_after_the_results_the_next_round_is_generated(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.call("call_1", "demo.echo", {})
    turn.result("call_1", "demo.echo", "done")

    assert next_step(turn.blocks) == GenerateRound(2)


def test_an_answer_that_did_not_end_the_turn_is_followed_by_a_round(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.add(BlockType.COMPLETION, "ref", CompletionBody(text="One."))

    assert next_step(turn.blocks) == GenerateRound(2)


PENDING_ANSWER = AttemptBody(text="Done.", reason=PENDING)


def test_an_answer_beside_calls_ends_the_turn_once_they_have_run(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.call("call_1", "demo.echo", {})
    turn.add(BlockType.COMPLETION_ATTEMPT, "attempt", PENDING_ANSWER)
    assert isinstance(next_step(turn.blocks), ExecuteCalls)

    turn.result("call_1", "demo.echo", "done")

    step = next_step(turn.blocks)
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

    assert next_step(turn.blocks) == GenerateRound(2)


def test_an_interrupted_answer_does_not_end_the_turn(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.add(BlockType.COMPLETION_ATTEMPT, "attempt", AttemptBody(text="As f", reason="steered"))

    assert next_step(turn.blocks) == GenerateRound(2)


def test_killed_after_the_end_nothing_is_left_to_do(turn: TimelineBuilder) -> None:
    turn.start_round()
    turn.call("call_1", "demo.echo", {})
    exit_body = ExitBody(outcome=Outcome.CANCELLED, rounds=1, usage=TurnUsage(), elapsed_ms=1)
    turn.add(BlockType.EXIT, "ref", exit_body)

    assert next_step(turn.blocks) == TurnEnded()


def test_a_round_is_sealed_by_its_decision(turn: TimelineBuilder) -> None:
    assert sealed_round(turn.blocks) == 0
    turn.start_round()
    assert sealed_round(turn.blocks) == 0

    turn.add(BlockType.THINKING, "ref", ThinkingBody(text="Hm."))

    assert sealed_round(turn.blocks) == 1


def test_failures_are_counted_back_to_the_last_good_round(turn: TimelineBuilder) -> None:
    assert failure_streak(turn.blocks) == ()
    fail_round(turn)
    assert len(failure_streak(turn.blocks)) == 1
    turn.start_round()
    turn.call("call_1", "demo.echo", {})
    turn.result("call_1", "demo.echo", "done")
    assert failure_streak(turn.blocks) == ()
    fail_round(turn)
    fail_round(turn)

    assert len(failure_streak(turn.blocks)) == 2


def test_a_begun_round_does_not_end_the_failure_streak(turn: TimelineBuilder) -> None:
    fail_round(turn)
    turn.start_round()

    assert len(failure_streak(turn.blocks)) == 1
