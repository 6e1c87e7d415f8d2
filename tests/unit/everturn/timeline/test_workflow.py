"""The steps of a turn as its blocks tell them, and the lanes that they run in."""

from collections.abc import Sequence

import pytest

from everturn.core import refs
from everturn.core.ids import ConversationId, TurnId
from everturn.events.model import ChatDelta
from everturn.events.turn_view import TurnRecord, build_lane_events, build_turn_view
from everturn.events.views import TurnView
from everturn.timeline.blocks import (
    Block,
    BlockType,
    Body,
    NotesBody,
    PlannedStep,
    RawDecisionBody,
    RoundStartBody,
    StepResultBody,
    WorkflowBody,
)
from everturn.timeline.plans import PlanStatus, StepStatus
from everturn.timeline.progress import ExecuteCalls, GenerateRound, TurnEnded, TurnProgress, fold_progress
from everturn.timeline.turns import Turn, TurnRequest, TurnStatus
from everturn.timeline.workflow import Phase, Workflow, fold_workflow, order_steps
from everturn_testing.core import BEGINNING
from everturn_testing.timeline import TimelineBuilder

TURN = "turn_1"
STEPS = (
    PlannedStep(id="a", task="Do a."),
    PlannedStep(id="b", task="Do b.", depends_on=("a",)),
    PlannedStep(id="c", task="Do c."),
)


class Lanes(TimelineBuilder):
    """A turn whose rounds are written by several lanes."""

    def __init__(self) -> None:
        super().__init__()
        self.start_turn(TURN, "Do it.")

    def put(self, kind: BlockType, body: Body, round_number: int) -> None:
        self.round = round_number
        self.add(kind, refs.round_ref(TURN, round_number, kind.value), body)

    def decide(self, decision: str, steps: tuple[PlannedStep, ...] = (), *, round_number: int = 1) -> None:
        body = WorkflowBody.model_validate({"decision": decision, "steps": steps})
        self.put(BlockType.WORKFLOW, body, round_number)

    def begin(self, step: str, round_number: int) -> None:
        self.put(BlockType.ROUND_START, RoundStartBody(limit=9, lane=step), round_number)

    def call_in(self, round_number: int, call_id: str) -> None:
        self.round = round_number
        self.call(call_id, "demo.echo", {})

    def result_in(self, round_number: int, call_id: str) -> None:
        self.round = round_number
        self.result(call_id, "demo.echo", "said")

    def end(self, step: str, round_number: int, status: str = "ok") -> None:
        body = StepResultBody.model_validate({"step": step, "status": status, "text": "It is done."})
        self.put(BlockType.STEP_RESULT, body, round_number)

    @property
    def workflow(self) -> Workflow:
        return fold_workflow(self.blocks)

    @property
    def progress(self) -> TurnProgress:
        return fold_progress(self.blocks)


def due(lanes: Lanes) -> list[str]:
    return [step.id for step in lanes.workflow.due]


def test_a_wave_has_the_steps_whose_dependencies_have_results() -> None:
    lanes = Lanes()
    lanes.decide("plan", STEPS)
    assert (lanes.workflow.find_phase(), due(lanes)) == (Phase.RUN, ["a", "c"])

    lanes.begin("a", 2)
    lanes.end("a", 2)
    assert (lanes.workflow.find_phase(), due(lanes)) == (Phase.RUN, ["c"])
    lanes.begin("c", 3)
    lanes.end("c", 3, "failed")
    assert lanes.workflow.find_phase() is Phase.ANALYZE

    lanes.decide("continue", round_number=4)
    assert (lanes.workflow.find_phase(), due(lanes)) == (Phase.RUN, ["b"])
    lanes.begin("b", 5)
    lanes.end("b", 5)
    lanes.decide("continue", round_number=6)
    assert lanes.workflow.find_phase() is Phase.ANSWER


def test_a_new_plan_replaces_what_is_left() -> None:
    lanes = Lanes()
    lanes.decide("plan", STEPS)
    for number, step in enumerate("ac", start=2):
        lanes.begin(step, number)
        lanes.end(step, number)
    new = PlannedStep(id="x", task="Do x.", depends_on=("a", "c"))
    lanes.decide("replan", (STEPS[0], STEPS[2], new), round_number=4)

    assert due(lanes) == ["x"]
    assert lanes.workflow.replans == 1


def test_a_steer_begins_no_more_steps_but_waits_for_those_that_run() -> None:
    lanes = Lanes()
    lanes.decide("plan", STEPS)
    lanes.begin("a", 2)
    assert lanes.workflow.find_phase(is_finalizing=True) is Phase.RUN
    lanes.end("a", 2, "cancelled")
    assert lanes.workflow.find_phase(is_finalizing=True) is Phase.ANSWER


def test_a_message_after_the_last_decision_is_judged() -> None:
    lanes = Lanes()
    lanes.decide("plan", STEPS)
    lanes.decide("done", round_number=2)
    assert lanes.workflow.find_phase() is Phase.ANSWER
    lanes.round = 3
    lanes.say("followup", "sig_1", "And x.")
    assert lanes.workflow.find_phase() is Phase.ANALYZE


def test_a_message_is_judged_before_more_steps_begin() -> None:
    lanes = Lanes()
    lanes.decide("plan", STEPS)
    lanes.begin("a", 2)
    lanes.end("a", 2, "cancelled")
    lanes.round = 3
    lanes.say("steer", "sig_1", "Otherwise.")
    lanes.say("followup", "sig_2", "And x.")

    assert lanes.workflow.find_phase() is Phase.ANALYZE


def test_a_turn_without_a_plan_is_a_loop() -> None:
    lanes = Lanes()
    assert lanes.workflow.find_phase() is Phase.PLAN
    lanes.decide("unplanned")
    assert lanes.workflow.find_phase() is Phase.LOOP
    begun = Lanes()
    begun.put(BlockType.NOTES, NotesBody(text="I look."), 1)
    assert begun.workflow.find_phase() is Phase.LOOP


def test_the_snapshot_shows_the_state_of_each_step() -> None:
    lanes = Lanes()
    lanes.decide("plan", STEPS)
    lanes.begin("c", 2)
    lanes.end("c", 2, "failed")
    lanes.begin("a", 3)

    plan = lanes.workflow.build_snapshot()

    assert plan is not None
    assert [(step.step_id, step.status) for step in plan.steps] == [
        ("a", StepStatus.IN_PROGRESS),
        ("b", StepStatus.PENDING),
        ("c", StepStatus.FAILED),
    ]
    assert (plan.status, plan.current) == (PlanStatus.OPEN, False)


def test_steps_are_put_after_those_that_they_depend_on() -> None:
    assert [step.id for step in order_steps((STEPS[1], STEPS[0], STEPS[2]), {})] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((STEPS[0], STEPS[0]), "the id 'a' is used for two steps"),
        ((STEPS[1],), "step 'b' depends on 'a', which is not a step"),
        ((PlannedStep(id="x", task="x", depends_on=("x",)),), "the steps x depend on each other in a circle"),
    ],
)
def test_steps_that_no_order_suits_are_rejected(steps: tuple[PlannedStep, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        order_steps(steps, {})


def test_each_lane_has_progress_of_its_own() -> None:
    lanes = Lanes()
    lanes.decide("plan", STEPS)
    lanes.begin("a", 2)
    lanes.begin("c", 3)
    lanes.call_in(3, "call_c")

    progress = lanes.progress
    assert progress.next_step("a") == GenerateRound(2)
    step = progress.next_step("c")
    assert isinstance(step, ExecuteCalls) and step.round == 3
    assert progress.next_step("b") == GenerateRound(4)
    assert progress.next_step() == GenerateRound(4)

    lanes.result_in(3, "call_c")
    assert lanes.progress.next_step("c") == GenerateRound(4)
    lanes.end("a", 2)
    assert lanes.progress.next_step("a") == TurnEnded()


def test_unusable_replies_in_a_row_are_counted_for_each_lane() -> None:
    lanes = Lanes()
    for number, step in [(2, "a"), (3, "c"), (4, "a")]:
        lanes.begin(step, number)
        lanes.put(BlockType.DECISION_RAW, RawDecisionBody(text="?", code="not_json"), number)

    progress = lanes.progress
    assert progress.lanes["a"].failure_streak == ("not_json", "not_json")
    assert progress.lanes["c"].failure_streak == ("not_json",)
    assert progress.failure_streak == ()


def test_model_calls_of_lanes_are_shown_by_their_blocks_and_without_answers() -> None:
    lanes = Lanes()
    lanes.begin("a", 2)
    lanes.think("Hm.")
    lanes.end("a", 2)

    assert show_calls(lanes.blocks, sealed_round=0) == ["2 model_called", "2 thinking: Hm.", "2 model_thought: Hm."]
    assert show_calls(lanes.blocks[-1:], sealed_round=2) == []


def show_calls(blocks: Sequence[Block], *, sealed_round: int) -> list[str]:
    events = build_lane_events(blocks, sealed_round=sealed_round)
    return [
        f"{number} {event.channel}: {event.text}"
        if isinstance(event, ChatDelta)
        else f"{number} {event.phase}" + ("" if event.thinking is None else f": {event.thinking}")
        for event, number in events
    ]


def test_each_round_of_a_step_is_sealed_by_itself() -> None:
    lanes = Lanes()
    lanes.decide("plan", STEPS)
    lanes.begin("a", 2)
    lanes.begin("c", 3)
    lanes.end("c", 3)

    assert [(each.round, each.step_id, each.sealed) for each in build_view(lanes).step_rounds] == [
        (2, "a", False),
        (3, "c", True),
    ]


def test_no_round_counts_as_sealed_while_an_earlier_one_of_a_lane_is_open() -> None:
    lanes = Lanes()
    lanes.decide("plan", STEPS)
    lanes.begin("a", 2)
    lanes.begin("c", 3)
    lanes.end("c", 3)
    assert count_rounds(lanes) == (1, 3)

    lanes.end("a", 2)
    assert count_rounds(lanes) == (3, 3)


def build_view(lanes: Lanes) -> TurnView:
    turn = Turn(TurnId(TURN), ConversationId("conv_1"), 1, TurnStatus.RUNNING, 0, TurnRequest("Do it."), BEGINNING)
    return build_turn_view(TurnRecord(turn, tuple(lanes.blocks)), tenant="acme", project="main")


def count_rounds(lanes: Lanes) -> tuple[int, int]:
    """The sealed round, and how many have begun."""
    view = build_view(lanes)
    return view.sealed_round, view.rounds
