"""Turns that nobody disturbs: answers, tools, repairs, caps, failing models, plans."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.replies import NONSENSE, answer, call, cut_answer
from turn_harness.tools import DemoTool

from chat_proc.agent import generation
from chat_proc.agent.kit import TurnLimits
from chat_proc.catalog.tool import ToolRegistry
from everturn.core.clock import iso
from everturn.events.model import ChatDelta, ChatRewind
from everturn.models.port import ContextLimitExceeded, ModelFailed, ModelUsage
from everturn.timeline.blocks import CompletionBody, NoticeBody, PlanAckBody, ThinkingBody, ToolResultBody
from everturn.timeline.plans import PlanStatus
from everturn.timeline.turns import Outcome
from everturn_testing.models.scripted_model import Fail, Finish, Pause, Say, Script, Step, Think

BROKEN = Fail(ModelFailed("cut", retryable=True, partial=True))


async def run(bench: Bench, text: str = "Hello.") -> None:
    await bench.say(text)
    await bench.work()


async def until_shown(bench: Bench) -> None:
    """Wait for the first piece of a text."""
    for _ in range(10_000):
        if any(isinstance(event.data, ChatDelta) for event in await bench.published()):
            return
        await asyncio.sleep(0)
    raise AssertionError("Nothing was shown.")


async def test_an_answer_ends_the_turn_at_once() -> None:
    bench = Bench(answer("Hello, Ann.", thinking="Be nice."))

    await run(bench)

    assert bench.types == ["react.round.start", "react.thinking", "assistant.completion", "react.exit"]
    assert bench.state().turns[0].answer == "Hello, Ann."
    assert bench.exits[0].outcome is Outcome.COMPLETED
    await check_conversation(bench)


async def test_a_streamed_answer_is_not_shown_twice() -> None:
    bench = Bench(answer("Hello, Ann.", notes="greet", thinking="Be nice.", followups=("Why?",), summary="greeted"))

    await run(bench)

    assert not [event for event in await bench.published() if isinstance(event.data, ChatRewind)]
    await check_conversation(bench)


async def test_a_tool_runs_and_the_next_round_answers() -> None:
    echo = DemoTool()
    bench = Bench(call("demo.echo", {"text": "x"}, notes="Look it up."), answer("Done."), tools=[echo])

    await run(bench)

    assert echo.effects.total() == 1
    assert bench.types == [
        "react.round.start",
        "react.notes",
        "react.tool.call",
        "react.tool.result",
        "react.round.start",
        "assistant.completion",
        "react.exit",
    ]
    assert "echo: x" in str(bench.model.requests[1])
    await check_conversation(bench)


async def test_a_written_file_is_streamed_and_offered() -> None:
    params = {"path": "outputs/note.md", "channel": "canvas", "kind": "file", "content": "# Note\nlong text"}
    bench = Bench(call("react.write", params), answer("Written."))

    await run(bench)

    (turn,) = bench.state().turns
    assert [file.filename for file in turn.files] == ["note.md"]
    assert [text.text for text in turn.texts if text.channel == "canvas"] == ["# Note\nlong text"]
    assert not [event for event in await bench.published() if isinstance(event.data, ChatRewind)]
    await check_conversation(bench)


async def test_the_third_unusable_reply_leads_to_the_closing_call() -> None:
    bench = Bench(NONSENSE, NONSENSE, NONSENSE, answer("That is all."))

    await run(bench)

    assert len(bench.texts(NoticeBody)) == 3
    assert bench.exits[0].outcome is Outcome.CAPPED
    assert "Close now: the limit on replies that could not be used" in str(bench.model.requests[3])
    assert bench.state().turns[0].answer == "That is all."
    await check_conversation(bench)


async def test_a_repair_costs_a_round() -> None:
    bench = Bench(NONSENSE, NONSENSE, answer("That is all."), limits=TurnLimits(rounds=2))

    await run(bench)

    assert len(bench.model.requests) == 3
    assert "Close now: " in str(bench.model.requests[2])
    assert (bench.exits[0].outcome, bench.exits[0].rounds) == (Outcome.CAPPED, 3)
    assert bench.state().turns[0].answer == "That is all."
    await check_conversation(bench)


@pytest.mark.parametrize(
    ("tool_id", "title", "error"),
    [
        ("demo.none\n", "demo.none\\n", "The agent has no such tool."),
        ("react.write", "react.write", "The parameters of react.write are invalid: path: Field required; "),
    ],
)
async def test_a_call_that_is_refused_is_a_failed_step(tool_id: str, title: str, error: str) -> None:
    bench = Bench(call(tool_id, {}), answer("That is all."))

    await run(bench)

    [step] = bench.state().turns[0].steps
    assert (step.status, step.title) == ("error", title)
    assert step.error is not None and step.error.startswith(error)
    await check_conversation(bench)


async def test_a_good_round_resets_the_repairs() -> None:
    bench = Bench(NONSENSE, NONSENSE, call("demo.echo", {}), NONSENSE, NONSENSE, answer("Fine."), tools=[DemoTool()])

    await run(bench)

    assert bench.exits[0].outcome is Outcome.COMPLETED
    await check_conversation(bench)


async def test_notes_of_a_refused_action_are_rewound() -> None:
    bench = Bench(call("no.such_tool", {}, notes="I will call it."), answer("Fine."))

    await run(bench)

    assert "does not exist" in bench.texts(NoticeBody)[0]
    assert [text.channel for text in bench.state().turns[0].texts] == ["answer"]
    await check_conversation(bench)


async def test_a_tool_call_in_the_last_round_leads_to_the_closing_call() -> None:
    echo = DemoTool()
    calls = call("demo.echo", {"text": "a"})
    bench = Bench(calls, calls, answer("What I have."), tools=[echo], limits=TurnLimits(rounds=2))

    await run(bench)

    assert echo.calls.total() == 1
    assert "last round" in bench.texts(NoticeBody)[0]
    assert bench.exits[0].outcome is Outcome.CAPPED
    await check_conversation(bench)


async def test_the_closing_call_takes_plain_text_for_the_answer() -> None:
    bench = Bench(NONSENSE, "Just words.", limits=TurnLimits(max_repairs=0))

    await run(bench)

    assert bench.texts(CompletionBody) == ["Just words."]
    await check_conversation(bench)


async def test_a_closing_call_that_wants_a_tool_fails_the_turn() -> None:
    bench = Bench(
        NONSENSE, call("demo.echo", {}, notes="once more"), tools=[DemoTool()], limits=TurnLimits(max_repairs=0)
    )

    await run(bench)

    (exit_body,) = bench.exits
    assert exit_body.error is not None
    assert exit_body.error.type.endswith("no-closing-answer")
    assert exit_body.usage.input_tokens == 200
    await check_conversation(bench)


async def test_a_closing_call_without_a_model_fails_the_turn() -> None:
    bench = Bench(NONSENSE, [Fail(ModelFailed("It is down."))], limits=TurnLimits(max_repairs=0))

    await run(bench)

    assert bench.exits[0].error is not None
    assert bench.exits[0].error.detail == "The turn reached the limit on replies that could not be used. It is down."
    await check_conversation(bench)


async def test_the_notes_of_a_closing_call_are_kept_with_its_answer() -> None:
    bench = Bench(NONSENSE, answer("That is all.", notes="closing"), limits=TurnLimits(max_repairs=0))

    await run(bench)

    assert [text.text for text in bench.state().turns[0].texts] == ["closing", "That is all."]
    await check_conversation(bench)


async def test_time_tokens_and_money_lead_to_the_closing_call() -> None:
    for limits, usage in (
        (TurnLimits(tokens=150), ModelUsage(input_tokens=140, output_tokens=10)),
        (TurnLimits(cost_usd=0.5), ModelUsage(input_tokens=1, output_tokens=1, cost_usd=0.6)),
    ):
        first: Script = [Say(call("demo.echo", {})), Finish("stop", usage)]
        bench = Bench(first, answer("Enough."), tools=[DemoTool()], limits=limits)

        await run(bench)

        assert bench.exits[0].outcome is Outcome.CAPPED
        await check_conversation(bench)


async def test_the_time_limit_leads_to_the_closing_call() -> None:
    bench = Bench(answer("Enough."), limits=TurnLimits(wall_time_s=5))
    await bench.say("Hello.")
    worker = bench.hire()

    async def pass_time(_: object) -> None:
        bench.clock.advance(6)

    worker.timelines.before_commit = pass_time
    await worker.work()

    assert bench.exits[0].outcome is Outcome.CAPPED
    await check_conversation(bench)


@pytest.mark.parametrize("codec", ["channels", "native"])
@pytest.mark.parametrize("has_answer", [True, False])
async def test_a_reply_ends_when_the_time_of_the_turn_is_over(codec: Any, has_answer: bool) -> None:
    begun: Script = [Say("It is 42, as the table says.") if has_answer else Think("Hm."), Pause(asyncio.Event())]
    bench = Bench(begun, "It is 42.", limits=TurnLimits(wall_time_s=0.3), codec=codec)
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await until(lambda: bench.model.unfinished == 1)

    bench.clock.advance(1)
    await task

    (exit,) = bench.exits
    if has_answer:
        assert bench.texts(CompletionBody) == ["It is 42, as the table says."]
        assert (exit.outcome, exit.cut_reason) == (Outcome.CUT, "time_limit")
    else:
        assert bench.texts(CompletionBody) == ["It is 42."]
        assert exit.outcome is Outcome.CAPPED
    await check_conversation(bench)


async def test_a_closing_reply_that_takes_too_long_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "MIN_CLOSING_S", 0.3)
    bench = Bench([Pause(asyncio.Event())], limits=TurnLimits(rounds=0, wall_time_s=0.1))
    await bench.say("Hello.")

    await bench.work()

    assert len(bench.model.requests) == 1
    assert bench.exits[0].outcome is None
    await check_conversation(bench)


async def test_the_time_of_an_answer_is_that_of_its_first_piece() -> None:
    go_on = asyncio.Event()
    reply = answer("It is 42, as the table says.")
    at = reply.index(", as")
    bench = Bench([Say(reply[:at]), Pause(go_on), Say(reply[at:])])
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await until_shown(bench)
    first_seen = bench.clock.now()

    bench.clock.advance(5)
    go_on.set()
    await task

    (completion,) = [block for block in bench.blocks if isinstance(block.body, CompletionBody)]
    assert completion.ts_first is not None and completion.ts_first < iso(first_seen)
    assert completion.ts > iso(first_seen + timedelta(seconds=5))
    await check_conversation(bench)


async def test_a_block_is_dated_when_it_was_appended_and_a_round_when_it_began() -> None:
    echo = DemoTool()
    echo.go_on.clear()
    bench = Bench(call("demo.echo", {"text": "x"}), answer("Done."), tools=[echo])
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await echo.started.wait()
    begun = bench.clock.now()

    bench.clock.advance(60)
    echo.go_on.set()
    await task

    first = {block.type.value: block.ts for block in bench.blocks if block.round == 1}
    assert first["react.round.start"] <= first["react.tool.call"] < iso(begun)
    assert first["react.tool.result"] > iso(begun + timedelta(seconds=60))


async def test_an_interrupted_reply_is_rewound_and_retried() -> None:
    bench = Bench([Think("Let me see"), Say(cut_answer("Half an ans")), BROKEN], answer("The whole answer."))

    await run(bench)

    assert bench.texts(CompletionBody) == ["The whole answer."]
    assert [event for event in await bench.published() if isinstance(event.data, ChatRewind)]
    assert [event.estimated for _, event in bench.platform.usage] == [True, False]
    await check_conversation(bench)


async def test_the_shown_part_of_a_broken_answer_is_kept() -> None:
    bench = Bench(*[[Say(cut_answer("Half")), BROKEN]] * 3)

    await run(bench)

    assert (bench.exits[0].outcome, bench.exits[0].cut_reason) == (Outcome.CUT, "provider_error")
    assert bench.state().turns[0].answer == "Half"
    assert [event.estimated for _, event in bench.platform.usage] == [True] * 3
    await check_conversation(bench)


async def test_a_model_that_refuses_for_good_fails_the_turn_at_once() -> None:
    bench = Bench([Fail(ModelFailed("401"))])

    await run(bench)

    assert bench.exits[0].error is not None
    assert len(bench.model.requests) == 1
    assert bench.state().conversation.state == "error"
    await check_conversation(bench)


async def test_a_conversation_that_is_too_long_fails_with_the_reason() -> None:
    bench = Bench([Fail(ContextLimitExceeded())])

    await run(bench)

    assert bench.exits[0].error is not None
    assert bench.exits[0].error.type.endswith("context-limit")
    await check_conversation(bench)


async def test_an_answer_already_shown_is_kept_whatever_else_is_wrong() -> None:
    bench = Bench(cut_answer("You have seen this"))

    await run(bench)

    assert bench.texts(CompletionBody) == ["You have seen this"]
    assert (bench.exits[0].outcome, bench.exits[0].cut_reason) == (Outcome.CUT, "incomplete")
    await check_conversation(bench)


@pytest.mark.parametrize("fanout", [False, True])
@pytest.mark.parametrize("rest", ["<channel:action>{}</channel:action>", "<channel:action></channel:action>", NONSENSE])
async def test_a_broken_action_after_a_shown_answer_opens_no_round(rest: str, fanout: bool) -> None:
    bench = Bench(answer("Done.") + rest, fanout=fanout)

    await run(bench)

    assert len(bench.model.requests) == 1
    assert bench.texts(CompletionBody) == ["Done."]
    assert bench.exits[0].outcome is Outcome.COMPLETED
    await check_conversation(bench)


@pytest.mark.parametrize(
    "rest",
    [(Say(""),), (Say(""), Say(" \n"), Say("")), (Think(""),), (Say("<channel:thinking></channel:thinking>"),)],
    ids=["a delta without content", "blank deltas", "empty reasoning", "an empty packet"],
)
async def test_what_has_no_content_behind_a_streamed_answer_opens_no_other_round(rest: tuple[Step, ...]) -> None:
    bench = Bench([Say(""), Say(answer("Done.")), *rest, Finish()])

    await run(bench)

    assert len(bench.model.requests) == 1
    assert bench.types == ["react.round.start", "assistant.completion", "react.exit"]
    assert [text.text for text in bench.state().turns[0].texts] == ["Done."]
    await check_conversation(bench)


async def test_a_file_shown_with_a_kept_answer_is_rewound() -> None:
    both = (
        '<channel:action>{"action": "complete", "final_answer": "Seen.", "tool_call": {"tool_id": "react.write", '
        '"params": {"path": "files/a.md", "channel": "canvas", "content": "never stored"}}}</channel:action>'
    )
    bench = Bench(both)

    await run(bench)

    assert bench.texts(CompletionBody) == ["Seen."]
    await check_conversation(bench)


async def test_reasoning_apart_from_the_reply_is_thinking() -> None:
    bench = Bench([Think(" Hmm."), Think(" Yes."), Say(answer("Hello.", thinking="Aloud."))])

    await run(bench)

    assert bench.texts(ThinkingBody) == ["Aloud.", "Hmm. Yes."]
    await check_conversation(bench)


async def test_marks_in_notes_move_the_plan_and_a_new_plan_ignores_them() -> None:
    plan = call("react.plan", {"mode": "new", "steps": ["look", "tell"]}, notes="✓ [1] not yet")
    bench = Bench(
        plan, call("demo.echo", {}, notes="✓ [1] looked"), answer("Done.", notes="✓ [2] reported"), tools=[DemoTool()]
    )

    await run(bench)

    assert len(bench.texts(PlanAckBody)) == 2
    (shown,) = bench.state().turns[0].plans
    assert shown.status is PlanStatus.COMPLETE
    await check_conversation(bench)


async def test_the_next_message_sees_the_turn_before() -> None:
    bench = Bench(answer("One."), answer("Two."))

    await run(bench, "First?")
    await run(bench, "Second?")

    assert "One." in str(bench.model.requests[1])
    assert [turn.ordinal for turn in bench.turn_rows] == [1, 2]
    await check_conversation(bench)


async def test_deltas_join_to_the_texts_of_the_blocks() -> None:
    bench = Bench(answer("Hello, Ann, how are you?"), chunk_chars=3)

    await run(bench)

    deltas = [event.data for event in await bench.published() if isinstance(event.data, ChatDelta)]
    assert "".join(delta.text for delta in deltas if delta.channel == "answer") == "Hello, Ann, how are you?"
    assert deltas[-1].completed


async def test_a_call_of_a_tool_that_is_gone_after_a_takeover_is_ambiguous() -> None:
    bench = Bench(call("demo.echo", {}), answer("Without it."), tools=[DemoTool()])
    await bench.say("Hello.")
    await bench.hire(failpoint="turn.after_c1:1:raise").work()
    bench.expire_lease()
    bench.registry = ToolRegistry([])

    await bench.work()

    results = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert [result.status for result in results] == ["ambiguous"]
    await check_conversation(bench)
