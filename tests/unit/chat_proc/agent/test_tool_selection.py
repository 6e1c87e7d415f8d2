"""Which tools a model may choose from, what it sees of them, and what follows from its choice."""

import asyncio
import json

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.tools import DemoTool, TextParams

from chat_proc.agent import tool_selection
from chat_proc.agent.tool_selection import MAX_CHOSEN, MAX_REQUEST_CHARS, build_selection_messages
from chat_proc.catalog.tool import ToolSpec
from chat_proc.models.structured import TOOL_NAME, StructuredLimits
from everturn.events.model import ChatPhase
from everturn.models.port import ModelFailed, ModelTraits, TextPart
from everturn.timeline.blocks import CompletionBody, NoticeBody, TurnHeaderBody
from everturn.timeline.turns import SignalKind
from everturn.turns.model import Effect
from everturn_testing.models.scripted_model import (
    SCRIPTED_TRAITS,
    Call,
    Fail,
    Finish,
    Pause,
    Say,
    Script,
    ScriptedModel,
)

TRAITS = ModelTraits("small", 10_000, False, False, abilities=frozenset({"tool_call"}))


def spec(tool_id: str, summary: str = "Does something.") -> ToolSpec:
    return ToolSpec(tool_id, summary, "A secret guide.", TextParams, Effect.PURE)


def reply(*ids: str) -> list[Call]:
    return [Call(TOOL_NAME, json.dumps({"tools": ids}))]


async def choose(*scripts: Script) -> tuple[str, ...] | None:
    """The tools that a turn offers after these replies."""
    bench = select_from(many_tools(), *scripts, "Done.", traits=TRAITS)
    await bench.say("Who bought most?")
    await bench.work()
    assert (bench.texts(CompletionBody), bench.model.requests[-1].force_tool) == (["Done."], "")
    (header,) = [block.body for block in bench.blocks if isinstance(block.body, TurnHeaderBody)]
    return header.tools


def read_user_text(question: str, *tools: ToolSpec) -> str:
    (part,) = build_selection_messages(question, tools)[1].parts
    assert isinstance(part, TextPart)
    return part.text


async def test_one_call_chooses_from_thirty_tools() -> None:
    bench = select_from(many_tools(), reply("shop.tool_7", "shop.tool_2"), "Done.", traits=TRAITS)
    await bench.say("Who bought most?")

    await bench.work()

    asked, offering = bench.model.requests
    assert [tool.name for tool in offering.tools if tool.name.startswith("shop__")] == ["shop__tool_2", "shop__tool_7"]
    assert [event.role for _, event in bench.platform.usage] == ["selection", "decision"]
    assert "Who bought most?" in str(asked) and "shop.tool_29" in str(asked)
    assert "react." not in str(asked)


async def test_unknown_repeated_and_surplus_ids_are_dropped() -> None:
    named = ["shop.tool_9", "shop.other", " shop.tool_9 ", *(f"shop.tool_{number}" for number in range(20, 30))]

    chosen = await choose(reply(*named))

    assert chosen == ("shop.tool_9", *(f"shop.tool_{number}" for number in range(20, 25)))
    assert len(chosen) == MAX_CHOSEN


async def test_the_tools_of_the_loop_can_not_be_chosen() -> None:
    assert await choose(reply("react.read", "shop.tool_1")) == ("shop.tool_1",)


async def test_a_choice_of_unknown_ids_alone_is_corrected() -> None:
    assert await choose(reply("shop.other", "react.read"), '{"tools": ["shop.tool_3"]}') == ("shop.tool_3",)


@pytest.mark.parametrize(
    "scripts",
    [
        [reply()],
        [reply("shop.other")] * 3,
        ["All of them.", "All of them.", "All of them."],
        [[Fail(ModelFailed("down"))]],
        [[Say("No."), Finish("refusal")]],
        [[Call(TOOL_NAME, '{"tools": [1]}')], "{}", "[]"],
    ],
)
async def test_every_failure_offers_all_tools(scripts: list[Script]) -> None:
    assert await choose(*scripts) is None


async def test_a_slow_model_offers_all_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_selection, "SELECTION_LIMITS", StructuredLimits(limit_s=0.01))

    assert await choose([Pause(asyncio.Event())]) is None


async def test_a_steer_ends_the_choice_and_its_usage_is_recorded() -> None:
    bench = select_from(many_tools(), [Pause(asyncio.Event())], "Done.")
    await bench.say("Do it.")
    working = asyncio.create_task(bench.work())
    await until(lambda: bool(bench.model.requests))

    await bench.signal(SignalKind.STEER, "Quickly.")
    await asyncio.wait_for(working, 10)

    assert [(event.role, event.estimated) for _, event in bench.platform.usage] == [
        ("selection", True),
        ("decision", False),
    ]
    assert (len(declared(bench)[-1]), bench.texts(CompletionBody)) == (30, ["Done."])


def test_the_catalog_has_a_short_line_for_each_tool() -> None:
    long_id, no_room = f"mcp.{'x' * 90}", f"mcp.{'y' * 70}"

    text = read_user_text(
        "  How?\n",
        spec("crm.find", "Finds\n customers."),
        spec("crm.long", "Finds all customers " * 9),
        spec(long_id),
        spec(no_room),
    )

    head, first, second, third, fourth, *rest = text.split("\n")
    assert (head, first, third, fourth) == ("[TOOLS]", "crm.find: Finds customers.", long_id, no_room)
    assert second.startswith("crm.long: Finds all customers") and second.endswith("…")
    assert len(second) <= 80
    assert rest == ["", "[MESSAGE]", "How?"]
    assert "secret guide" not in text


def test_a_long_question_is_cut() -> None:
    assert len(read_user_text("x" * 100_000, spec("crm.find"))) < MAX_REQUEST_CHARS + 100


def many_tools() -> list[DemoTool]:
    return [DemoTool(f"shop.tool_{n}") for n in range(30)]


def name_tools(*names: str) -> str:
    return json.dumps({"tools": list(names)})


def select_from(tools: list[DemoTool], *scripts: Script, traits: ModelTraits = SCRIPTED_TRAITS) -> Bench:
    model = ScriptedModel(scripts, traits=traits)
    return Bench(model=model, tools=tools, codec="native", selectable=[tool.spec.tool_id for tool in tools])


def declared(bench: Bench) -> list[list[str]]:
    """The declared tools of each request, without those of the loop."""
    requests = bench.model.requests
    return [
        [tool.name for tool in each.tools if tool.name.startswith("shop__")] for each in requests if not each.force_tool
    ]


async def test_a_turn_with_many_tools_makes_one_more_call_and_declares_what_it_chose() -> None:
    bench = select_from(many_tools(), name_tools("shop.tool_3", "shop.tool_1"), [Call("shop__tool_1")], "Done.")
    await bench.say("Do it.")

    await bench.work()

    assert declared(bench)[1:] == [["shop__tool_1", "shop__tool_3"]] * 2
    assert len(bench.model.requests) == 3
    phases = [event.data for event in await bench.published() if isinstance(event.data, ChatPhase)]
    assert [phase.total_tools for phase in phases if phase.phase == "selecting_tools"] == [30]
    await check_conversation(bench)


async def test_a_tool_that_was_not_chosen_can_not_be_called() -> None:
    tools = many_tools()
    bench = select_from(tools, name_tools("shop.tool_1"), [Call("shop__tool_9")], "Not possible.")
    await bench.say("Do it.")

    await bench.work()

    assert tools[9].calls.total() == 0
    assert "does not exist" in bench.texts(NoticeBody)[0]


async def test_the_tools_of_the_turn_before_are_kept_while_they_are_enough() -> None:
    bench = select_from(
        many_tools(),
        name_tools("shop.tool_1", "shop.tool_2"),
        "One.",
        name_tools("shop.tool_2"),
        "Two.",
        name_tools("shop.tool_5"),
        "Three.",
    )
    for _ in range(3):
        await bench.say("Do it.")
        await bench.work()

    answered = [tools for tools in declared(bench) if tools]
    assert answered == [["shop__tool_1", "shop__tool_2"], ["shop__tool_1", "shop__tool_2"], ["shop__tool_5"]]


async def test_another_worker_offers_the_same_tools_without_asking_again() -> None:
    bench = select_from(many_tools(), name_tools("shop.tool_1"), [Call("shop__tool_1")], "Done.")
    await bench.say("Do it.")

    await bench.hire(failpoint="turn.after_c1:1:raise").work()
    bench.expire_lease()
    await bench.work()

    assert declared(bench)[-1] == ["shop__tool_1"] and len(bench.model.requests) == 3
    assert bench.texts(CompletionBody) == ["Done."]


async def test_a_few_tools_are_all_offered_without_a_call() -> None:
    tools = many_tools()[:12]
    bench = select_from(tools, "Done.")
    await bench.say("Do it.")

    await bench.work()

    assert (len(bench.model.requests), len(declared(bench)[0])) == (1, 12)
