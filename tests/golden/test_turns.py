"""Whole turns as text: what the model said, which blocks came of it, what it was sent, what clients received."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.record import render_conversation
from turn_harness.replies import NONSENSE, answer, call, cut_answer
from turn_harness.tools import DemoTool

from chat_proc.agent.kit import TurnLimits
from everturn.timeline.turns import SignalKind
from everturn_testing.models.scripted_model import Pause, Say

build = partial(Bench, tick_ms=0)


async def plain_answer() -> Bench:
    bench = build(answer("Hello, Ann.", thinking="A greeting.", followups=("And now?",), summary="Ann was greeted."))
    await bench.say("Hello.")
    await bench.work()
    return bench


async def tool_and_answer() -> Bench:
    look = call("demo.echo", {"text": "sales"}, notes="I look it up.", thinking="I need data.")
    bench = build(look, answer("Sales are fine."), tools=[DemoTool()])
    await bench.say("How are sales?")
    await bench.work()
    return bench


async def written_file() -> Bench:
    params = {"path": "outputs/report.md", "channel": "canvas", "kind": "file", "content": "# Report\n\nAll is well.\n"}
    bench = build(call("react.write", params, notes="I write it down."), answer("The report is ready."))
    await bench.say("Write a report.")
    await bench.work()
    return bench


async def repair() -> Bench:
    bench = build(NONSENSE, call("demo.gone", {}), answer("Now it works."))
    await bench.say("Hello.")
    await bench.work()
    return bench


async def followup_in_the_turn() -> Bench:
    echo = DemoTool()
    echo.go_on.clear()
    bench = build(call("demo.echo", {"text": "one"}), answer("One and two."), tools=[echo])
    await bench.say("Do one.")
    task = asyncio.create_task(bench.work())
    await echo.started.wait()
    await bench.say("And two.")
    echo.go_on.set()
    await task
    return bench


async def plan() -> Bench:
    steps = ["look at the data", "tell what it says"]
    bench = build(
        call("react.plan", {"mode": "new", "steps": steps}),
        call("demo.echo", {"text": "data"}, notes="✓ [1] looked"),
        answer("It says nothing.", notes="✓ [2] reported"),
        tools=[DemoTool()],
    )
    await bench.say("Analyse it.")
    await bench.work()
    return bench


async def interrupted(kind: SignalKind, text: str, *then: str) -> Bench:
    bench = build([Say(cut_answer("As far as I c")), Pause(asyncio.Event())], *then)
    await bench.say("Tell me a scenario.")
    task = asyncio.create_task(bench.work())
    await until(lambda: bench.model.unfinished == 1)
    for _ in range(200):
        await asyncio.sleep(0)
    await bench.signal(kind, text)
    await task
    return bench


async def cancel() -> Bench:
    return await interrupted(SignalKind.CANCEL, "")


async def steer() -> Bench:
    return await interrupted(SignalKind.STEER, "A short one.", answer("Once upon a time. The end."))


async def closing_at_a_cap() -> Bench:
    echo = call("demo.echo", {"text": "more"})
    bench = build(echo, echo, answer("What I have so far."), tools=[DemoTool()], limits=TurnLimits(rounds=2))
    await bench.say("Find everything.")
    await bench.work()
    return bench


async def takeover() -> Bench:
    bench = build(call("demo.echo", {"text": "x"}), answer("Done."), tools=[DemoTool()])
    await bench.say("Do it.")
    await bench.hire(failpoint="turn.before_c2:1:raise").work()
    bench.expire_lease()
    await bench.work()
    return bench


SCENARIOS = (
    plain_answer,
    tool_and_answer,
    written_file,
    repair,
    followup_in_the_turn,
    plan,
    cancel,
    steer,
    closing_at_a_cap,
    takeover,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_turn_goes_as_it_was_recorded(
    scenario: Callable[[], Awaitable[Bench]], check_golden: Callable[[str, str], None]
) -> None:
    bench = await scenario()

    await check_conversation(bench)
    check_golden(scenario.__name__, await render_conversation(bench))
