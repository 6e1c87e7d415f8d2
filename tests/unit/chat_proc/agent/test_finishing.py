"""Turns whose answer is followed by a synthesis, a working summary or suggestions."""

import asyncio
import json
from typing import Any

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.signals import run_claimed_for_cancel
from turn_harness.tools import DemoTool

from everturn.events.model import ChatDelta
from everturn.models.port import ModelFailed, ModelRequest, TextPart
from everturn.timeline.blocks import CompletionBody, SummaryBody
from everturn.timeline.turns import ExternalEvent, Outcome, SignalKind
from everturn_testing.models.scripted_model import Call, Fail, Finish, Pause, Say, Script, ScriptedModel

CALL: Script = [Call("demo__echo", '{"text": "a"}')]
NOTES = {"summary": "Goal: to hear a\nOutcome: heard", "followups": ["And b?", " ", "And c?"]}


class LongTool(DemoTool):
    """Returns 3,000 characters."""

    async def run(self, call: Any) -> Any:
        outcome = await super().run(call)
        return type(outcome)("ok", "x" * 3_000)


def text_of(request: ModelRequest) -> str:
    return "\n".join(part.text for message in request.messages for part in message.parts if isinstance(part, TextPart))


async def shown_answer(bench: Bench) -> str:
    deltas = [event.data for event in await bench.published() if isinstance(event.data, ChatDelta)]
    return "".join(delta.text for delta in deltas if delta.channel == "answer")


async def run(bench: Bench) -> None:
    await bench.say("Echo a.")
    await bench.work()


async def test_the_synthesis_writes_the_answer_from_the_steps_without_tools() -> None:
    bench = Bench(CALL, "Draft.", "The whole answer.", tools=[LongTool()], codec="native", synthesis="on")

    await run(bench)

    request = bench.model.requests[-1]
    assert request.tools == () and "Echo a." in text_of(request) and "[DRAFT]\nDraft." in text_of(request)
    assert "x" * 2_000 + "..." in text_of(request) and "x" * 2_001 not in text_of(request)
    assert await shown_answer(bench) == "The whole answer."
    assert bench.texts(CompletionBody) == ["The whole answer."]
    await check_conversation(bench)


@pytest.mark.parametrize(
    "script",
    [
        [Fail(ModelFailed("Down."))],
        [Say("The wh"), Fail(ModelFailed("Down."))],
        [Say("The wh"), Finish("length")],
        [Say("The wh"), Finish("refusal")],
        [Say("The wh"), Finish("content_filter")],
        " ",
    ],
)
async def test_if_the_synthesis_fails_the_text_of_the_loop_is_the_answer(script: Script) -> None:
    bench = Bench(CALL, "Draft.", script, tools=[DemoTool()], codec="native", synthesis="on")

    await run(bench)

    assert bench.texts(CompletionBody) == ["Draft."]
    assert bench.exits[-1].outcome is Outcome.COMPLETED
    await check_conversation(bench)


async def test_the_draft_of_a_synthesis_is_not_streamed() -> None:
    draft: Script = [Say("Draft."), Pause(0.2)]
    bench = Bench(CALL, draft, "Whole.", tools=[DemoTool()], codec="native", synthesis="on")

    await run(bench)

    assert await shown_answer(bench) == "Whole."


async def test_a_turn_without_calls_needs_no_synthesis() -> None:
    bench = Bench("Hello.", tools=[DemoTool()], codec="native", synthesis="on")

    await run(bench)

    assert (await shown_answer(bench), len(bench.model.requests)) == ("Hello.", 1)


@pytest.mark.parametrize(("codec", "calls"), [("json", 3), ("native", 2)])
async def test_by_default_only_answers_in_json_are_synthesized(codec: Any, calls: int) -> None:
    call = CALL if codec == "native" else json.dumps({"action": "tool_call", "tool": "demo.echo", "args": {}})
    last = "Answer." if codec == "native" else json.dumps({"action": "final_answer", "answer": "Draft."})
    bench = Bench(call, last, "Answer.", tools=[DemoTool()], codec=codec, synthesis="auto")

    await run(bench)

    assert len(bench.model.requests) == calls
    assert (await shown_answer(bench), bench.texts(CompletionBody)) == ("Answer.", ["Answer."])


async def test_a_worker_that_dies_in_the_synthesis_costs_only_the_synthesis() -> None:
    bench = Bench(CALL, "Draft.", tools=[DemoTool()], codec="native", synthesis="on")
    bench.model.add([Say("The wh"), Pause(60.0)])
    await bench.say("Echo a.")
    worker = bench.hire(failpoint="turn.mid_stream:4:raise")
    await worker.work()

    bench.expire_lease()
    bench.model.add("The whole answer.")
    await bench.work()

    assert bench.texts(CompletionBody) == ["The whole answer."]
    assert [bool(request.tools) for request in bench.model.requests] == [True, True, False, False]
    assert sorted((event.role, event.estimated) for _, event in bench.platform.usage) == [
        ("decision", False), ("decision", False), ("synthesis", False), ("synthesis", True)
    ]  # fmt: skip
    await check_conversation(bench)


async def test_a_draining_worker_leaves_the_synthesis_to_the_next() -> None:
    echo = DemoTool()
    echo.go_on.clear()
    bench = Bench(CALL, [Pause(drafted := asyncio.Event()), Say("Draft.")], "Whole.", tools=[echo], codec="native")
    bench.synthesis = "on"
    await bench.say("Echo a.")
    worker = bench.hire()
    task = asyncio.create_task(worker.run_one())
    await echo.started.wait()
    echo.go_on.set()
    await until(lambda: len(bench.model.requests) == 2)
    assert worker.current is not None

    worker.current.request_handover()
    drafted.set()
    await task

    assert len(bench.model.requests) == 2
    await bench.work()
    assert bench.texts(CompletionBody) == ["Whole."]
    await check_conversation(bench)


async def test_a_worker_that_claims_a_turn_for_its_cancel_ends_it_before_its_synthesis() -> None:
    bench = Bench(CALL, "Draft.", tools=[DemoTool()], codec="native", synthesis="on")
    await bench.say("Echo a.")
    await bench.hire(failpoint="turn.after_c1:2:raise").work()
    bench.expire_lease()
    await bench.signal(SignalKind.CANCEL)

    await run_claimed_for_cancel(bench)

    assert bench.exits[0].outcome is Outcome.CANCELLED
    assert len(bench.model.requests) == 2
    await check_conversation(bench)


async def test_a_followup_in_the_synthesis_is_handled_before_the_turn_ends() -> None:
    bench = Bench(CALL, "Draft.", tools=[DemoTool()], codec="native", synthesis="on")
    bench.model.add([Say("Whole."), Pause(0.2)], "Both.", "Both, whole.")
    await bench.say("Echo a.")
    working = asyncio.create_task(bench.work())
    await until(lambda: len(bench.model.requests) == 3)

    await bench.signal(SignalKind.FOLLOWUP, "And b.")
    await working

    assert bench.texts(CompletionBody)[-1] == "Both, whole."
    assert bench.exits[-1].outcome is Outcome.COMPLETED
    await check_conversation(bench)


async def test_an_event_that_is_only_recorded_does_not_prevent_the_synthesis() -> None:
    drafted = asyncio.Event()
    bench = Bench(CALL, [Pause(drafted), Say("Draft.")], "Whole.", tools=[DemoTool()], codec="native", synthesis="on")
    await bench.say("Echo a.")
    working = asyncio.create_task(bench.work())
    await until(lambda: len(bench.model.requests) == 2)

    await bench.tell(ExternalEvent("form", reactive=False), "Sent.")
    drafted.set()
    await working

    assert bench.texts(CompletionBody) == ["Whole."]
    await check_conversation(bench)


async def test_a_followup_after_a_draft_is_covered_by_one_answer() -> None:
    """The worker died in the synthesis: nobody has seen the draft."""
    bench = Bench(CALL, "Draft.", tools=[DemoTool()], codec="native", synthesis="on")
    bench.model.add([Say("The wh"), Pause(60.0)])
    await bench.say("Echo a.")
    await bench.hire(failpoint="turn.mid_stream:4:raise").work()
    await bench.signal(SignalKind.FOLLOWUP, "And b.")

    bench.expire_lease()
    bench.model.add("Draft of both.", "Both, whole.")
    await bench.work()

    assert bench.texts(CompletionBody) == ["Both, whole."]
    assert [row.status for row in bench.turn_rows] == [bench.turn_rows[0].status]
    assert bench.exits[-1].outcome is Outcome.COMPLETED
    await check_conversation(bench)


async def test_a_native_turn_gets_its_summary_and_suggestions_from_a_structured_call() -> None:
    notes = ScriptedModel([json.dumps(NOTES)])
    bench = Bench(CALL, "Answer.", tools=[DemoTool()], codec="native", summary_model=notes)

    await run(bench)

    assert bench.texts(SummaryBody) == [NOTES["summary"]]
    (completion,) = [block.body for block in bench.blocks if isinstance(block.body, CompletionBody)]
    assert completion.followups == ("And b?", "And c?")
    assert "echo: a" in text_of(notes.requests[0]) and "[ANSWER]\nAnswer." in text_of(notes.requests[0])
    await check_conversation(bench)


async def test_without_usable_notes_the_turn_ends_all_the_same() -> None:
    notes = ScriptedModel([[Fail(ModelFailed("Down."))]])
    bench = Bench(CALL, "Answer.", tools=[DemoTool()], codec="native", summary_model=notes)

    await run(bench)

    assert (bench.texts(SummaryBody), bench.texts(CompletionBody)) == ([], ["Answer."])
    assert bench.exits[-1].outcome is Outcome.COMPLETED


async def test_a_cancel_ends_the_call_for_notes() -> None:
    notes = ScriptedModel([[Pause(60.0)]])
    bench = Bench(CALL, "Answer.", tools=[DemoTool()], codec="native", summary_model=notes)
    await bench.say("Echo a.")
    working = asyncio.create_task(bench.work())
    await until(lambda: bool(notes.requests))

    await bench.signal(SignalKind.CANCEL)
    await asyncio.wait_for(working, 10)

    assert bench.exits[-1].outcome is Outcome.CANCELLED
    assert await shown_answer(bench) == "Answer."
