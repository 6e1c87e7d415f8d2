"""Models that tools of bundles call, in turns with real processes: what they get, cost, and are refused."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.programs import build_program_tools
from turn_harness.replies import answer, call
from turn_harness.tools import FreeParams

from chat_proc.agent.kit import TurnLimits
from chat_proc.catalog.tool import Tool, ToolCall, ToolOutcome, ToolSpec
from chat_proc.tools.code.program_calls import CallHandler
from everturn.core.ids import CallId
from everturn.events.model import ChatDelta
from everturn.execution.messages import GatewayCall
from everturn.models.port import ModelFailed
from everturn.timeline.blocks import CompletionBody, ToolResultBody
from everturn.timeline.turns import Outcome, SignalKind
from everturn.turns.model import Effect
from everturn.turns.ports import EffectKey
from everturn_testing.models.scripted_model import Fail, Pause, Say, ScriptedModel

pytestmark = pytest.mark.sandbox

TOOLS = '''
from pydantic import BaseModel

class Rating(BaseModel):
    stars: int

def ask(text):
    return [{"role": "user", "content": text}]

@tool(effect="pure")
async def summarize(text: str, context: ToolContext) -> str:
    """Summarizes a text."""
    heard = []
    results, meta = await stream_with_channels(
        svc=context.models,
        messages=ask(f"{text} {get_secret('b:key')}"),
        role="fast",
        channels=[ChannelSpec("summary", emit_marker="panel")],
        subscribers=ChannelSubscribers().subscribe("summary", lambda *, text, **_: heard.append(text)),
        key="summary",
    )
    return f"{results['summary'].raw} {''.join(heard)} {meta['service_error']}"

@tool(effect="pure")
def rate(text: str, context: ToolContext) -> int:
    """Rates a text."""
    return context.wait(context.models.structured_call(ask(text), Rating)).stars

@tool(effect="pure")
async def rate_often(times: int, context: ToolContext) -> list[str]:
    """Rates a text many times."""
    async def attempt() -> str:
        try:
            return str((await context.models.structured_call(ask("x"), Rating)).stars)
        except ToolError as error:
            return str(error)
    return await asyncio.gather(*(attempt() for _ in range(times)))

@tool(effect="pure")
async def crash_once(context: ToolContext) -> int:
    """Crashes when the model of its first call has begun to write."""
    with open(f"{os.environ['HOME']}/count", "a+") as file:
        file.write("x")
        file.seek(0)
        number = len(file.read())
    def crash(**_delta):
        if number == 1:
            os._exit(7)
    await context.models.stream_with_channels(
        messages=ask("x"), channels=[ChannelSpec("a")], subscribers=ChannelSubscribers().subscribe("a", crash)
    )
    return number

@tool(effect="pure")
async def leave(context: ToolContext) -> str:
    """Returns before its model does."""
    asyncio.create_task(context.models.structured_call(ask("x"), Rating))
    await asyncio.sleep(0.1)
    return "left"

@tool(effect="pure")
async def overreach(context: ToolContext) -> str:
    """Asks for what only a workflow can have."""
    return await context._port.ask("feedback", {"reaction": "ok"})

@tool(effect="pure")
async def smuggle(context: ToolContext) -> str:
    """Sends a file with a request for a model."""
    return await context._port.ask("structured", {}, content=b"x")
'''
DONE = answer("Done.")
Open = Callable[..., Awaitable[Any]]


async def play(open_host: Open, *scripts: Any, **more: Any) -> Bench:
    bench = await build(open_host, *scripts, **more)
    await bench.say("Hi")
    await bench.work()
    await check_conversation(bench)
    return bench


async def build(open_host: Open, *scripts: Any, **more: Any) -> Bench:
    opened = await open_host(TOOLS, secrets={"key": "sesame-sesame"})
    return Bench(*scripts, tools=opened.tools.values(), **more)


def results(bench: Bench) -> list[str]:
    return [block.body.text for block in bench.blocks if isinstance(block.body, ToolResultBody)]


def booked(bench: Bench) -> Counter[str]:
    """How many model calls the turn has paid, by purpose."""
    return Counter(event.role for _, event in bench.platform.usage)


async def test_tools_call_models_by_role_and_the_turn_pays(open_host: Open):
    rated = call("desk.rate", {"text": "Good."})
    bench = await build(open_host, call("desk.summarize", {"text": "A long text."}), rated, '{"stars": 4}', DONE)
    fast = bench.hinted["fast"] = ScriptedModel(["<channel:summary>Short.</channel:summary>"])
    await bench.say("Hi")
    await bench.work()
    await check_conversation(bench)

    assert results(bench) == ["Short. Short. None", "4"]
    assert bench.texts(CompletionBody) == ["Done."]
    assert booked(bench) == {"decision": 3, "tool": 2}
    assert "sesame" not in repr(fast.requests) and "A long text." in repr(fast.requests)
    shown = [event.data for event in await bench.published() if isinstance(event.data, ChatDelta)]
    assert "summary" not in {delta.channel for delta in shown}


async def test_a_failing_model_is_reported_and_the_tool_can_go_on(open_host: Open):
    away = [Fail(ModelFailed("overloaded", retryable=True))]
    half = [Say("<channel:summary>half"), *away]
    rated = call("desk.rate", {"text": "x"})
    bench = await play(open_host, call("desk.summarize", {"text": "x"}), half, rated, away, DONE)

    streamed, valued = results(bench)
    assert streamed.startswith("half half {'kind': 'ModelFailed', 'message': ")
    assert valued.startswith("structured_call: ") and "overloaded" in valued
    assert bench.exits[0].outcome is Outcome.COMPLETED


async def test_a_turn_without_tokens_or_time_pays_for_no_call(open_host: Open):
    rated = call("desk.rate", {"text": "x"})
    bench = await play(open_host, rated, DONE, limits=TurnLimits(tokens=1))
    assert results(bench) == ["The turn has reached the limit of 1 tokens."]
    assert booked(bench)["tool"] == 0


async def test_a_call_of_a_model_ends_with_the_time_of_the_turn(open_host: Open):
    hanging = [Say("{"), Pause(asyncio.Event())]
    limits = TurnLimits(wall_time_s=3)
    bench = await play(open_host, call("desk.rate", {"text": "x"}), hanging, DONE, limits=limits)
    assert results(bench) == ["The turn has reached the time limit of 3 s."]
    assert booked(bench)["tool"] == 1


async def test_the_tools_of_a_turn_have_20_calls_of_each_kind(open_host: Open):
    often = [call("desk.rate_often", {"times": 13}), *['{"stars": 4}'] * 13]
    rest = [call("desk.rate_often", {"times": 40}), *['{"stars": 4}'] * 7]
    bench = await play(open_host, *often, *rest, DONE)

    first, second = results(bench)
    assert (first.count('"4"'), second.count('"4"')) == (13, 7)
    assert second.count("The tools of a turn can make at most 20 calls of models.structured_call.") == 33
    assert booked(bench)["tool"] == 20


async def test_a_cancelled_call_pays_for_what_its_model_has_written(open_host: Open):
    model = ScriptedModel([call("desk.rate", {"text": "x"}), [Say('{"st'), Pause(asyncio.Event())], DONE])
    bench = await build(open_host, model=model)
    await bench.say("Hi")
    working = asyncio.create_task(bench.work())
    await until(lambda: len(model.requests) == 2)
    await bench.signal(SignalKind.CANCEL)
    await working
    await check_conversation(bench)

    assert bench.exits[0].outcome is Outcome.CANCELLED
    assert booked(bench) == {"decision": 1, "tool": 1}
    assert model.unfinished == 1


async def test_a_model_call_does_not_outlive_its_tool(open_host: Open):
    bench = await play(open_host, call("desk.leave", {}), [Say("{"), Pause(asyncio.Event())], DONE)
    assert results(bench) == ["left"]
    assert booked(bench) == {"decision": 2, "tool": 1}


async def test_a_tool_that_is_repeated_calls_its_model_again(open_host: Open):
    reply = "<channel:a>Hello!</channel:a>"
    bench = await play(open_host, call("desk.crash_once", {}), reply, reply, DONE)
    assert results(bench) == ["2"]
    assert booked(bench) == {"decision": 2, "tool": 2}


async def test_a_tool_can_ask_for_models_only(open_host: Open):
    bench = await play(open_host, call("desk.overreach", {}), call("desk.smuggle", {}), DONE)
    refused, ended = results(bench)
    assert refused == "Only a workflow can ask for that."
    assert ended.endswith("The reason: it sent a request 'ask' of something else.")


class Program:
    """Runs like a program that calls a tool."""

    def __init__(self, tool: Tool) -> None:
        self.spec = ToolSpec("demo.program", "Runs.", "", FreeParams, Effect.PURE)
        self._tools = build_program_tools([tool])

    async def run(self, call: ToolCall) -> ToolOutcome:
        tool_id, arguments = "desk.rate", {"text": "x"}
        key = EffectKey(call.context.turn_id, call.call_id, tool_id, "0" * 64, 1)
        given = await CallHandler(self._tools, call.context).answer(
            GatewayCall(1, tool_id, dict(arguments)), key, CallId("call_2")
        )
        return ToolOutcome("ok", str(given.reply.value))


async def test_tools_that_programs_call_have_models(open_host: Open):
    opened = await open_host(TOOLS)
    bench = Bench(call("demo.program", {}), '{"stars": 5}', DONE, tools=[Program(opened.tools["rate"])])
    await bench.say("Hi")
    await bench.work()
    await check_conversation(bench)

    assert results(bench) == ["5"]
    assert booked(bench) == {"decision": 2, "tool": 1}
