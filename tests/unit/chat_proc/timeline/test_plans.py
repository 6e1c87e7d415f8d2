"""Plans folded from blocks."""

from chat_proc.timeline.present import current_plan, latest_plans, open_plans
from everturn.core.ids import PlanId, TurnId
from everturn.core.refs import round_ref
from everturn.timeline.blocks import BlockType, PlanBody, PlanHistoryBody
from everturn.timeline.plans import PlanMoment, PlanSnapshot, close_plan, mark_steps, new_plan
from everturn_testing.timeline import NOW, TimelineBuilder


def add(timeline: TimelineBuilder, *plans: PlanSnapshot) -> None:
    for plan in plans:
        timeline.add(BlockType.PLAN, plan.snapshot_ref, PlanBody(plan=plan))


def begin(timeline: TimelineBuilder, plan_id: str) -> PlanSnapshot:
    moment = PlanMoment(timeline.turn_id, NOW)
    changes = new_plan(latest_plans(timeline.blocks), plan_id=PlanId(plan_id), labels=["a", "b"], moment=moment)
    add(timeline, *changes)
    return changes[-1]


def test_the_latest_snapshot_of_each_plan_counts() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    begin(timeline, "plan_a")
    begin(timeline, "plan_b")

    assert [(plan.plan_id, plan.current) for plan in latest_plans(timeline.blocks)] == [
        ("plan_a", False),
        ("plan_b", True),
    ]
    assert (current := current_plan(timeline.blocks)) is not None
    assert current.plan_id == "plan_b"


def test_a_complete_or_closed_plan_is_neither_open_nor_current() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    done = mark_steps(begin(timeline, "plan_a"), "✓ [1]\n✓ [2]", moment=PlanMoment(TurnId("turn_1"), NOW))
    assert done is not None
    add(timeline, done)
    begin(timeline, "plan_b")
    add(timeline, *close_plan(latest_plans(timeline.blocks), "plan_b", moment=PlanMoment(TurnId("turn_1"), NOW)))

    assert current_plan(timeline.blocks) is None
    assert open_plans(latest_plans(timeline.blocks), TurnId("turn_1")) == ()


def test_a_turn_shows_the_last_four_open_plans() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    for name in "abcde":
        begin(timeline, f"plan_{name}")

    shown = [plan.plan_id for plan in open_plans(latest_plans(timeline.blocks), TurnId("turn_1"))]

    assert shown == ["plan_b", "plan_c", "plan_d", "plan_e"]


def test_a_new_turn_brings_back_only_the_current_plan() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    begin(timeline, "plan_a")
    begin(timeline, "plan_b")
    timeline.start_turn("turn_2", "Go on")

    assert [plan.plan_id for plan in open_plans(latest_plans(timeline.blocks), TurnId("turn_2"))] == ["plan_b"]


def test_plans_are_the_same_without_the_summarized_blocks() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    begin(timeline, "plan_a")
    begin(timeline, "plan_b")
    begin(timeline, "plan_c")
    covered = len(timeline.blocks)
    timeline.start_turn("turn_2", "Go on")
    (newer,) = close_plan(latest_plans(timeline.blocks), "plan_a", moment=PlanMoment(TurnId("turn_2"), NOW))
    add(timeline, newer)
    carried = [plan for plan in latest_plans(timeline.blocks[:covered]) if plan.plan_id != "plan_a"]
    history_ref = round_ref("turn_2", 0, "plans")
    timeline.add(BlockType.PLAN_HISTORY, history_ref, PlanHistoryBody(plans=tuple(carried)))

    plans = latest_plans(timeline.blocks[covered:])

    assert plans == latest_plans(timeline.blocks)
    assert [plan.plan_id for plan in plans] == ["plan_b", "plan_c", "plan_a"]
    assert (current := current_plan(timeline.blocks[covered:])) is not None
    assert current.plan_id == "plan_c"
