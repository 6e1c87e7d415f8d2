"""Which tools a model may choose from, what it sees of them, and what follows from its choice."""

import asyncio
import json

import pytest
from turn_harness.tools import TextParams

from chat_proc.agent.tool_selection import MAX_CHOSEN, MAX_QUESTION_CHARS, build_selection_messages, choose_tools
from chat_proc.catalog.tool import ToolSpec
from chat_proc.models.calls import CallTracker
from chat_proc.models.structured import TOOL_NAME, StructuredLimits
from everturn.models.port import ModelFailed, ModelTraits, TextPart
from everturn.turns.model import Effect
from everturn_testing.models.scripted_model import Call, Fail, Finish, Pause, Say, Script, ScriptedModel

TRAITS = ModelTraits("small", 10_000, False, False, abilities=frozenset({"tool_call"}))


def spec(tool_id: str, summary: str = "Does something.") -> ToolSpec:
    return ToolSpec(tool_id, summary, "A secret guide.", TextParams, Effect.PURE)


TOOLS = (spec("react.read"), *(spec(f"crm.tool_{number}") for number in range(30)), spec("react.write"))


def reply(*ids: str) -> list[Call]:
    return [Call(TOOL_NAME, json.dumps({"tools": ids}))]


async def choose(*scripts: Script, question: str = "Who bought most?") -> tuple[str, ...] | None:
    model = ScriptedModel(scripts, traits=TRAITS)
    return await choose_tools(model, question, TOOLS, tracker=CallTracker(TRAITS, "selection"))


def read_user_text(question: str, *tools: ToolSpec) -> str:
    (part,) = build_selection_messages(question, tools)[1].parts
    assert isinstance(part, TextPart)
    return part.text


async def test_one_call_chooses_from_thirty_tools() -> None:
    model = ScriptedModel([reply("crm.tool_7", "crm.tool_2")], traits=TRAITS)
    tracker = CallTracker(TRAITS, "selection")

    chosen = await choose_tools(model, "Who bought most?", TOOLS, tracker=tracker)

    assert chosen == ("crm.tool_2", "crm.tool_7")
    assert tracker.count == 1
    assert [event.role for event in tracker.build_events()] == ["selection"]
    sent = str(model.requests[0])
    assert "Who bought most?" in sent
    assert "crm.tool_29" in sent
    assert "react." not in sent
    assert "secret guide" not in sent


async def test_unknown_repeated_and_surplus_ids_are_dropped() -> None:
    named = ["crm.tool_9", "crm.other", " crm.tool_9 ", *(f"crm.tool_{number}" for number in range(20, 30))]

    chosen = await choose(reply(*named))

    assert chosen == ("crm.tool_9", *(f"crm.tool_{number}" for number in range(20, 25)))
    assert len(chosen) == MAX_CHOSEN


async def test_the_tools_of_the_loop_can_not_be_chosen() -> None:
    assert await choose(reply("react.read", "crm.tool_1")) == ("crm.tool_1",)


async def test_a_choice_of_unknown_ids_alone_is_corrected() -> None:
    assert await choose(reply("crm.other", "react.read"), '{"tools": ["crm.tool_3"]}') == ("crm.tool_3",)


@pytest.mark.parametrize(
    "scripts",
    [
        [reply()],
        [reply("crm.other")] * 3,
        ["All of them.", "All of them.", "All of them."],
        [[Fail(ModelFailed("down"))]],
        [[Say("No."), Finish("refusal")]],
        [[Call(TOOL_NAME, '{"tools": [1]}')], "{}", "[]"],
    ],
)
async def test_every_failure_offers_all_tools(scripts: list[Script]) -> None:
    assert await choose(*scripts) is None


async def test_a_slow_model_offers_all_tools() -> None:
    model = ScriptedModel([[Pause(asyncio.Event())]], traits=TRAITS)
    tracker = CallTracker(TRAITS, "selection")

    async with asyncio.timeout(5):
        chosen = await choose_tools(model, "?", TOOLS, tracker=tracker, limits=StructuredLimits(limit_s=0.01))

    assert chosen is None
    assert tracker.build_events()[0].estimated


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


def test_a_long_question_is_cut() -> None:
    assert len(read_user_text("x" * 100_000, spec("crm.find"))) < MAX_QUESTION_CHARS + 100
