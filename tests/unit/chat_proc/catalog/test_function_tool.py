"""A function as a tool: parameters from its signature, events of its call, values as JSON."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError

from chat_proc.catalog.described import DescribedTool, FunctionTool, ToolModule, load_tools
from chat_proc.catalog.tool import Tool, ToolCall, ToolContext, ToolEvents, ToolOutcome
from everturn.core.errors import Conflict
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn_testing.files.stored_files import OWNER
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW
from everturn_testing.turns.live_turn import RecordingTurn


def load(city_file: Path, threads: ThreadPoolExecutor, name: str) -> Tool:
    (tool,) = load_tools([ToolModule(alias="city", file=city_file, tools={name: DescribedTool()})], threads)
    return tool


async def call(tool: Tool, live: RecordingTurn | None = None, **params: object) -> ToolOutcome:
    context = ToolContext(
        OWNER, ConversationId("conv_1"), TurnId("turn_1"), 1, (), NOW, MemorySourcePool(), live=live or RecordingTurn()
    )
    return await tool.run(ToolCall(CallId("call_1"), tool.spec.params.model_validate(params), None, context))


def test_the_docstring_and_the_signature_describe_it(city_file, threads) -> None:
    spec = load(city_file, threads, "find").spec

    assert (spec.tool_id, spec.summary, spec.in_programs) == ("city.find", "Finds cities by name.", True)
    assert spec.guide == "Finds cities by name.\n\nThe best first."
    assert list(spec.params.model_fields) == ["name", "limit"]


def test_its_strategy_is_unknown_unless_the_operator_says(city_file, threads) -> None:
    module = {"alias": "city", "file": city_file, "tools": {"find": {"strategy": "exploration"}}}
    (reported,) = load_tools([ToolModule.model_validate(module)], threads)

    assert (load(city_file, threads, "find").spec.strategy, reported.spec.strategy) == ("unknown", "exploration")


async def test_an_async_function_is_awaited_and_may_report_progress(city_file, threads) -> None:
    live = RecordingTurn()

    outcome = await call(load(city_file, threads, "find"), live, name="Ulm")

    assert outcome.value == [{"name": "Ulm", "limit": 3}]
    assert outcome.text == '[{"name": "Ulm", "limit": 3}]'
    assert live.tool_events == [("progress", "Looking for Ulm.")]


async def test_a_plain_function_runs_in_a_thread(city_file, threads) -> None:
    assert (await call(load(city_file, threads, "count"), names=["a", "b"])).value == 2


@pytest.mark.parametrize("params", [{}, {"name": 1}, {"name": "Ulm", "limit": "many"}, {"name": "Ulm", "other": 1}])
def test_arguments_are_checked_by_the_signature(city_file, threads, params: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        load(city_file, threads, "find").spec.params.model_validate(params)


async def test_what_it_raises_is_raised(city_file, threads) -> None:
    with pytest.raises(ValueError, match="no such city"):
        await call(load(city_file, threads, "fail"))


async def test_no_event_is_sent_after_its_call(threads) -> None:
    kept: list[ToolEvents] = []

    def keep(events: ToolEvents) -> None:
        kept.append(events)

    await call(FunctionTool("demo.keep", keep, DescribedTool(), threads))

    with pytest.raises(Conflict):
        kept[0].progress("late")
