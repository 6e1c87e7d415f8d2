"""react.plan: lifecycle calls become snapshots on the timeline."""

import pytest
from pydantic import ValidationError

from chat_proc.catalog.tool import ToolOutcome
from chat_proc.timeline.present import current_plan
from chat_proc.tools.plan import PlanTool, derive_plan_id
from everturn.core.ids import CallId, is_id
from everturn.timeline.blocks import BlockType, PlanBody
from everturn.timeline.plans import PlanMoment, mark_steps
from everturn_testing.timeline import NOW, TimelineBuilder


@pytest.fixture
def timeline() -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    timeline.start_round()
    return timeline


def keep(timeline: TimelineBuilder, outcome: ToolOutcome) -> None:
    for record in outcome.records:
        timeline.add(record.type, record.ref, record.body)


async def test_a_new_plan_becomes_a_record_and_is_shown(call_tool, timeline) -> None:
    outcome = await call_tool(PlanTool(), timeline, {"mode": "new", "steps": ["collect", "draft"]}, call_id="call_a")

    assert outcome.text == "The plan is created.\nplan_id=plan_a (current)\n  □ [1] collect\n  □ [2] draft"
    assert [(record.type, record.ref) for record in outcome.records] == [
        (BlockType.PLAN, "ar:turn_1.react.plan.plan_a"),
    ]


async def test_replace_writes_the_retired_plan_and_the_new_one(call_tool, timeline) -> None:
    keep(timeline, await call_tool(PlanTool(), timeline, {"steps": ["a"]}, call_id="call_a"))

    params = {"mode": "replace", "plan_id": "plan_a", "steps": ["b"]}
    outcome = await call_tool(PlanTool(), timeline, params, call_id="call_b")

    bodies = [record.body for record in outcome.records if isinstance(record.body, PlanBody)]
    assert [(body.plan.plan_id, body.plan.status.value) for body in bodies] == [
        ("plan_a", "superseded"),
        ("plan_b", "open"),
    ]


async def test_activate_and_close_work_on_open_plans(call_tool, timeline) -> None:
    keep(timeline, await call_tool(PlanTool(), timeline, {"steps": ["a"]}, call_id="call_a"))
    keep(timeline, await call_tool(PlanTool(), timeline, {"steps": ["b"]}, call_id="call_b"))

    active = await call_tool(PlanTool(), timeline, {"mode": "activate", "plan_id": "plan_a"})
    keep(timeline, active)
    closed = await call_tool(PlanTool(), timeline, {"mode": "close", "plan_id": "plan_a"})
    keep(timeline, closed)
    again = await call_tool(PlanTool(), timeline, {"mode": "close", "plan_id": "plan_a"})

    assert active.text.startswith("The plan is active again.\nplan_id=plan_a (current)")
    assert closed.text.startswith("The plan is closed.")
    assert again.status == "error"
    assert again.text.endswith("Open plans: plan_b.")


async def test_a_wrong_id_changes_nothing_and_names_what_is_open(call_tool, timeline) -> None:
    outcome = await call_tool(PlanTool(), timeline, {"mode": "activate", "plan_id": "plan_x"})

    assert (outcome.status, outcome.records) == ("error", ())
    assert outcome.text.endswith("No plan is open.")


async def test_empty_steps_are_refused(call_tool, timeline) -> None:
    outcome = await call_tool(PlanTool(), timeline, {"steps": [" "]})

    assert outcome.status == "error"


async def test_a_repeated_call_begins_the_same_plan(call_tool, timeline) -> None:
    first = await call_tool(PlanTool(), timeline, {"steps": ["a"]})

    assert await call_tool(PlanTool(), timeline, {"steps": ["a"]}) == first


def test_the_id_of_a_plan_is_a_plan_id() -> None:
    assert is_id(derive_plan_id(CallId("call_01890000-0000-7000-8000-000000000001")), "plan")


@pytest.mark.parametrize(
    "params",
    [{"mode": "new"}, {"mode": "replace", "steps": ["a"]}, {"mode": "close"}, {"mode": "forget", "plan_id": "x"}],
)
async def test_a_mode_without_what_it_needs_is_refused(call_tool, timeline, params) -> None:
    with pytest.raises(ValidationError):
        await call_tool(PlanTool(), timeline, params)


async def test_a_failing_call_never_costs_the_current_plan(call_tool, timeline) -> None:
    keep(timeline, await call_tool(PlanTool(), timeline, {"steps": ["a"]}, call_id="call_a"))
    calls = [
        {"mode": "activate", "plan_id": "plan_x"},
        {"mode": "close", "plan_id": "plan_x"},
        {"mode": "replace", "plan_id": "plan_x", "steps": ["b"]},
        {"mode": "replace", "plan_id": "plan_a", "steps": [" "]},
        {"mode": "new", "steps": [""]},
    ]

    for params in calls:
        outcome = await call_tool(PlanTool(), timeline, params)
        assert outcome.status == "error"
        assert outcome.text.startswith("No plan was changed: ")
        keep(timeline, outcome)

    plan = current_plan(timeline.blocks)
    assert plan is not None
    assert plan.plan_id == "plan_a"


async def test_a_complete_plan_is_closed_no_more(call_tool, timeline) -> None:
    keep(timeline, await call_tool(PlanTool(), timeline, {"steps": ["a"]}, call_id="call_a"))
    plan = current_plan(timeline.blocks)
    assert plan is not None
    done = mark_steps(plan, "✓ 1.", moment=PlanMoment(timeline.turn_id, NOW))
    assert done is not None
    timeline.add(BlockType.PLAN, done.snapshot_ref, PlanBody(plan=done))

    outcome = await call_tool(PlanTool(), timeline, {"mode": "close", "plan_id": "plan_a"})

    assert outcome.text == "No plan was changed: The plan plan_a is complete, not open. No plan is open."


async def test_activating_the_current_plan_again_is_one_new_snapshot(call_tool, timeline) -> None:
    keep(timeline, await call_tool(PlanTool(), timeline, {"steps": ["a"]}, call_id="call_a"))

    outcome = await call_tool(PlanTool(), timeline, {"mode": "activate", "plan_id": "plan_a"})

    assert [record.body.plan.current for record in outcome.records] == [True]
