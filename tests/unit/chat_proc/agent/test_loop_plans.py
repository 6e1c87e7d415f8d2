"""Plans through rounds and turns: marks, the round that changes a plan, what a new turn shows, what can be read."""

import json

import pytest
from turn_harness.behaviours import CODECS
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.replies import answer, answer_in, call, call_in
from turn_harness.tools import DemoTool

from everturn.events.model import ChatPlan
from everturn.models.port import CodecName
from everturn.timeline.blocks import BlockType, CompletionBody, PlanAckBody, PlanBody, ToolResultBody
from everturn.timeline.plans import PlanSnapshot, StepStatus
from everturn_testing.core import SequentialIds
from everturn_testing.models.scripted_model import Call, Say, Script


def new(*steps: str, notes: str = "") -> str:
    return call("react.plan", {"mode": "new", "steps": list(steps)}, notes=notes)


def plan_ids(count: int) -> list[str]:
    """The ids that the first calls of a bench give to their plans."""
    ids = SequentialIds()
    return ["plan_" + ids.call().removeprefix("call_") for _ in range(count)]


async def play(*turns: tuple[str, ...], fanout: bool = False) -> Bench:
    """One prompt for each turn of replies."""
    scripts = [script for turn in turns for script in turn]
    bench = Bench(*scripts, tools=[DemoTool(strategy="neutral")], fanout=fanout)
    for _ in turns:
        await bench.say("Go on.")
        await bench.work()
    await check_conversation(bench)
    return bench


def snapshots(bench: Bench) -> list[PlanSnapshot]:
    return [block.body.plan for block in bench.blocks if isinstance(block.body, PlanBody)]


def announced(bench: Bench, request: int) -> str:
    """The open plans as a request shows them."""
    (message,) = bench.model.requests[request].messages[1:]
    text = "".join(getattr(part, "text", "") for part in message.parts)
    return text.rpartition("[OPEN PLANS]\n")[2].partition("\n\n")[0]


async def test_marks_are_on_the_timeline_before_the_call_of_their_round() -> None:
    bench = await play((new("look", "report"), call("demo.echo", {}, notes="✓ 1. looked"), answer("Done.")))

    types = [block.type for block in bench.blocks if block.round == 2]
    assert types.index(BlockType.PLAN_ACK) < types.index(BlockType.PLAN) < types.index(BlockType.TOOL_CALL)
    assert bench.texts(PlanAckBody) == ["✓ [1] look"]


async def test_marks_do_not_count_in_a_round_that_changes_a_plan() -> None:
    both = new("other", notes="✓ [1]") + call("demo.echo", {}, notes="✓ [1]")

    bench = await play((new("look", "report"), both, answer("Done.")), fanout=True)

    assert bench.texts(PlanAckBody) == []
    assert all(step.status is StepStatus.PENDING for plan in snapshots(bench) for step in plan.steps)


async def test_a_mark_inside_a_sentence_marks_nothing() -> None:
    bench = await play((new("look"), call("demo.echo", {}, notes="I have ✓ [1] looked"), answer("Done.")))

    assert bench.texts(PlanAckBody) == []


def _mark(codec: CodecName) -> Script:
    """A reply with a mark where the prompt of the codec asks for it."""
    match codec:
        case "channels":
            return call("demo.echo", {}, notes="✓ [1]")
        case "native":
            return [Say("✓ [1]"), Call("demo__echo", "{}")]
        case "json":
            return json.dumps({"action": "tool_call", "tool": "demo.echo", "args": {}, "reasoning": "✓ [1]"})


@pytest.mark.parametrize("codec", CODECS)
async def test_marks_are_read_where_the_prompt_of_a_codec_asks_for_them(codec: CodecName) -> None:
    plan = call_in(codec, "react.plan", {"mode": "new", "steps": ["look", "report"]})
    bench = Bench(plan, _mark(codec), answer_in(codec, "✓ [2]"), tools=[DemoTool()], codec=codec)
    await bench.say("Go on.")
    await bench.work()
    await check_conversation(bench)

    assert bench.texts(PlanAckBody) == ["✓ [1] look"]
    assert bench.texts(CompletionBody) == ["✓ [2]"]


async def test_marks_are_for_the_current_plan_only() -> None:
    old, current = plan_ids(2)

    bench = await play((new("a"), new("b"), call("demo.echo", {}, notes="✓ [1]"), answer("Done.")))

    last = {plan.plan_id: plan for plan in snapshots(bench)}
    assert last[old].steps[0].status is StepStatus.PENDING
    assert last[current].steps[0].status is StepStatus.DONE


async def test_a_plan_that_is_complete_makes_no_other_current() -> None:
    bench = await play((new("a"), new("b"), answer("Done.", notes="✓ [1]")))

    assert not any(plan.current for plan in {plan.plan_id: plan for plan in snapshots(bench)}.values())


async def test_a_wrong_id_costs_a_round_and_not_the_current_plan() -> None:
    wrong = call("react.plan", {"mode": "activate", "plan_id": "plan_x"})

    bench = await play((new("a"), wrong, answer("Done.", notes="✓ [1]")))

    assert [body.status for block in bench.blocks if isinstance(body := block.body, ToolResultBody)] == ["ok", "error"]
    assert bench.texts(PlanAckBody) == ["✓ [1] a"]


async def test_announce_shows_open_plans_and_marks_the_current_one() -> None:
    first, second = plan_ids(2)

    bench = await play((new("a"), new("b"), answer("Done.")))

    assert announced(bench, 0) == "none"
    assert announced(bench, 2) == f"plan_id={first}\n  □ [1] a\nplan_id={second} (current)\n  □ [1] b"


async def test_a_new_turn_brings_back_the_current_plan_and_no_other() -> None:
    _, second = plan_ids(2)

    bench = await play((new("a"), new("b"), answer("Later.")), (answer("Done.", notes="✓ [1]"),))

    assert announced(bench, 3) == f"plan_id={second} (current)\n  □ [1] b"
    assert snapshots(bench)[-1].last_turn_id == bench.turn_rows[1].id


async def test_an_older_plan_is_read_by_its_alias_and_made_current_again() -> None:
    first, _ = plan_ids(2)
    read = call("react.read", {"items": [{"path": f"ar:plan.latest:{first}", "line_start": 1}]})
    again = call("react.plan", {"mode": "activate", "plan_id": first})

    bench = await play((new("a"), new("b"), answer("Later.")), (read, again, answer("Done.", notes="✓ [1]")))

    (reported,) = [
        body.text for block in bench.blocks if isinstance(body := block.body, ToolResultBody) and "1: " in body.text
    ]
    assert f"1: plan_id={first}\n2:   □ [1] a" in reported
    assert announced(bench, 5).startswith(f"plan_id={plan_ids(2)[1]}\n")
    assert snapshots(bench)[-1].plan_id == first


async def test_the_marks_of_a_turn_can_be_read() -> None:
    turn = SequentialIds().turn()
    read = call("react.read", {"paths": [f"ar:{turn}.react.plan.ack.1"]})

    bench = await play((new("a", "b"), call("demo.echo", {}, notes="✓ [1]"), read, answer("Done.")))

    reported = [body.text for block in bench.blocks if isinstance(body := block.body, ToolResultBody)][-1]
    assert reported.endswith("✓ [1] a")


async def test_every_snapshot_is_published() -> None:
    bench = await play((new("a"), new("b"), call("demo.echo", {}, notes="✓ [1]"), answer("Done.")))

    events = [event.data.plan for event in await bench.published() if isinstance(event.data, ChatPlan)]
    assert events == snapshots(bench)


async def test_announce_shows_a_replaced_plan_no_more_and_the_new_one_as_current() -> None:
    first, second = plan_ids(2)
    replace = call("react.plan", {"mode": "replace", "plan_id": first, "steps": ["b"]})

    bench = await play((new("a"), replace, answer("Done.")))

    assert announced(bench, 2) == f"plan_id={second} (current)\n  □ [1] b"
