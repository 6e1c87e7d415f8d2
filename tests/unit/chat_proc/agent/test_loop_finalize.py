"""After a steer with words a turn is only to be finished: few rounds, few tools, short replies."""

import asyncio

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.replies import answer, call, cut_answer
from turn_harness.signals import FOLLOWUP, STEER, hanging, interrupt, say_before_close, states, withdraw_when_read
from turn_harness.tools import DemoTool

from chat_proc.agent.kit import TurnLimits
from everturn.events.model import ChatDelta
from everturn.timeline.blocks import (
    AttemptBody,
    CompletionBody,
    NoticeBody,
    PromptBody,
    RawDecisionBody,
    SignalBody,
    ThinkingBody,
)
from everturn.timeline.turns import Outcome, SignalKind, SignalState

Said = tuple[tuple[SignalKind, str], ...]
WRITE = call("react.write", {"path": "outputs/a.md", "channel": "canvas", "kind": "file", "content": "x"})


async def steer_in_a_tool(bench: Bench, echo: DemoTool, *signals: tuple[SignalKind, str]) -> None:
    """Say these while the tool runs, and let the turn end."""
    echo.go_on.clear()
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await echo.started.wait()
    for kind, text in signals:
        await bench.signal(kind, text)
    echo.go_on.set()
    await task


async def test_the_notice_after_a_steer_names_the_allowed_tools() -> None:
    echo = DemoTool()
    bench = Bench(call("demo.echo", {}), call("demo.echo", {}), answer("Short."), tools=[echo])

    await steer_in_a_tool(bench, echo, (STEER, "Wrap up."))

    (notice,) = bench.texts(NoticeBody)
    assert "demo.echo was not called" in notice
    assert "react.write" in notice and "react.plan" in notice
    assert echo.calls.total() == 1
    assert "finalize" in str(bench.model.requests[1])
    await check_conversation(bench)


async def test_after_a_steer_work_may_still_be_written_down() -> None:
    echo = DemoTool()
    bench = Bench(call("demo.echo", {}), WRITE, answer("Written."), tools=[echo])

    await steer_in_a_tool(bench, echo, (STEER, "Wrap up."))

    assert bench.texts(NoticeBody) == []
    assert bench.state().turns[0].files[0].filename == "a.md"
    assert (bench.exits[0].outcome, bench.state().turns[0].answer) == (Outcome.COMPLETED, "Written.")


async def test_replies_after_a_steer_are_short() -> None:
    echo = DemoTool()
    bench = Bench(call("demo.echo", {}), answer("Short."), tools=[echo])

    await steer_in_a_tool(bench, echo, (STEER, "Wrap up."))

    assert [request.max_output_tokens for request in bench.model.requests] == [8192, 3000]


async def test_a_steer_leaves_two_rounds_and_then_the_turn_is_closed_as_stopped() -> None:
    echo = DemoTool()
    bench = Bench(call("demo.echo", {}), WRITE, WRITE, answer("Closed."), tools=[echo])

    await steer_in_a_tool(bench, echo, (STEER, "Wrap up."))

    assert bench.exits[0].outcome is Outcome.STOPPED
    assert bench.state().turns[0].answer == "Closed."
    assert "a steer" in str(bench.model.requests[3])
    await check_conversation(bench)


@pytest.mark.parametrize("said", [((STEER, "left"), (FOLLOWUP, "and more")), ((FOLLOWUP, "more"), (STEER, "left"))])
async def test_a_followup_overrides_a_steer_in_either_order(
    said: tuple[tuple[object, str], ...],
) -> None:
    echo = DemoTool()
    bench = Bench(call("demo.echo", {}), call("demo.echo", {}), answer("Both."), tools=[echo])

    await steer_in_a_tool(bench, echo, *said)

    assert echo.calls.total() == 2
    assert bench.texts(NoticeBody) == []
    assert [request.max_output_tokens for request in bench.model.requests] == [8192] * 3
    await check_conversation(bench)


async def test_a_followup_after_a_steer_restores_normal_rounds() -> None:
    echo = DemoTool()
    bench = Bench(hanging(), WRITE, call("demo.echo", {}), answer("Both."), tools=[echo], limits=TurnLimits(rounds=1))
    await bench.say("Hello.")
    worker = bench.hire()
    task = asyncio.create_task(worker.work())
    await until(lambda: bench.model.unfinished == 1)
    await bench.signal(STEER, "Wrap up.")

    async def more(commit: object) -> None:
        if len(bench.model.requests) == 2 and len(bench.platform.signals) == 1:
            await bench.signal(FOLLOWUP, "And this.")

    worker.timelines.before_commit = more
    await task

    assert [request.max_output_tokens for request in bench.model.requests[1:3]] == [3000, 8192]
    assert states(bench) == [SignalState.APPLIED] * 2
    await check_conversation(bench)


async def test_the_second_steer_restarts_the_final_phase() -> None:
    bench = Bench(hanging(), hanging(cut_answer("To the le")), WRITE, answer("Right."))
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    for call_number, text in ((1, "left"), (2, "no, right")):
        await until(lambda wanted=call_number: len(bench.model.requests) == wanted and bench.model.unfinished == wanted)
        for _ in range(200):
            await asyncio.sleep(0)
        await bench.signal(STEER, text)
    await task

    assert bench.texts(SignalBody) == ["left", "no, right"]
    assert bench.state().turns[0].answer == "Right."
    assert bench.exits[0].outcome is Outcome.COMPLETED
    await check_conversation(bench)


async def test_a_steer_a_followup_and_a_blank_steer_stop_the_turn() -> None:
    bench = Bench(hanging(cut_answer("As far as I g")))
    await bench.say("Hello.")

    await interrupt(bench, (STEER, "left"), (FOLLOWUP, "and right"), (STEER, " "))

    assert bench.exits[0].outcome is Outcome.STOPPED
    assert states(bench) == [SignalState.APPLIED] * 3
    assert bench.texts(CompletionBody) == ["As far as I g"]
    await check_conversation(bench)


async def test_a_steer_in_the_last_round_still_gets_its_rounds() -> None:
    bench = Bench(answer("One."), WRITE, answer("Steered."), limits=TurnLimits(rounds=1))
    await bench.say("Hello.")
    worker = bench.hire()
    say_before_close(bench, worker, (STEER, "shorter"))

    await worker.work()

    assert bench.state().turns[0].answer == "Steered."
    assert (bench.exits[0].outcome, bench.exits[0].rounds) == (Outcome.COMPLETED, 3)
    await check_conversation(bench)


async def test_a_steer_that_cuts_off_the_closing_call_gets_its_rounds_too() -> None:
    bench = Bench(
        call("demo.echo", {}),
        hanging(cut_answer("So f")),
        answer("Steered."),
        tools=[DemoTool()],
        limits=TurnLimits(rounds=1),
    )
    await bench.say("Hello.")

    await interrupt(bench, (STEER, "shorter"), when=2)

    assert bench.state().turns[0].answer == "Steered."
    assert bench.exits[0].outcome is Outcome.COMPLETED
    await check_conversation(bench)


async def test_the_closing_call_is_repeated_after_a_steer_that_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(
        call("demo.echo", {}),
        hanging("<channel:thinking>Let me"),
        answer("All I have."),
        tools=[DemoTool()],
        limits=TurnLimits(rounds=1),
    )
    withdraw_when_read(bench, monkeypatch)
    await bench.say("Hello.")

    await interrupt(bench, (STEER, "shorter"), when=2)

    assert bench.state().turns[0].answer == "All I have."
    assert bench.exits[0].outcome is Outcome.CAPPED
    await check_conversation(bench)


async def test_steers_never_earn_rounds_beyond_what_any_turn_may_have() -> None:
    bench = Bench(
        *[answer(f"Answer number {n}, about something else: {'abcdefgh'[n] * 40}") for n in range(8)],
        limits=TurnLimits(rounds=1),
    )
    await bench.say("Hello.")
    worker = bench.hire()

    async def always_steer(commit: object) -> None:
        if getattr(commit, "close", None) is not None and len(bench.platform.signals) < 6:
            await bench.signal(STEER, f"otherwise {len(bench.platform.signals)}")

    worker.timelines.before_commit = always_steer
    await worker.work()

    assert bench.exits[0].rounds <= 2 * 1 + 2
    assert SignalState.PROMOTED in states(bench)
    await check_conversation(bench)


async def test_a_blank_steer_during_the_final_commit_stops_nothing() -> None:
    bench = Bench(answer("Done."))
    await bench.say("Hello.")
    worker = bench.hire()
    say_before_close(bench, worker, (STEER, ""))

    await worker.work()

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert states(bench) == [SignalState.EXPIRED]
    assert bench.texts(PromptBody) == ["Hello."]
    await check_conversation(bench)


async def test_what_the_model_was_about_to_do_is_kept_when_a_steer_cuts_it_off() -> None:
    begun = '<channel:thinking>Hm.</channel:thinking><channel:action>{"action": "call_tool", "notes": "", "tool'
    bench = Bench(hanging(begun), answer("Right."))
    await bench.say("Hello.")

    await interrupt(bench, (STEER, "Not that."))

    (raw,) = [block.body for block in bench.blocks if isinstance(block.body, RawDecisionBody)]
    assert (raw.code, raw.text) == ("interrupted", '<channel:action>{"action": "call_tool", "notes": "", "tool')
    assert "interrupted" in str(bench.model.requests[1])
    await check_conversation(bench)


async def test_thinking_and_a_shown_answer_are_kept_after_a_steer() -> None:
    bench = Bench(hanging("<channel:thinking>Hm.</channel:thinking>" + cut_answer("As far as")), answer("Right."))
    await bench.say("Hello.")

    await interrupt(bench, (STEER, "Not that."))

    assert bench.texts(ThinkingBody) == ["Hm."]
    assert bench.texts(AttemptBody) == ["As far as"]
    assert bench.texts(RawDecisionBody) == []
    assert "As far as" in str(bench.model.requests[1])
    await check_conversation(bench)


async def test_an_interruption_is_no_failed_reply() -> None:
    scripts = hanging('<channel:action>{"action"'), hanging('<channel:action>{"action"'), answer("Right.")
    bench = Bench(*scripts, limits=TurnLimits(max_repairs=0))
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    for number in (1, 2):
        await until(lambda wanted=number: len(bench.model.requests) == wanted and bench.model.unfinished == wanted)
        for _ in range(200):
            await asyncio.sleep(0)
        await bench.signal(STEER, f"Steer {number}.")
    await task

    assert bench.exits[0].outcome is Outcome.COMPLETED
    await check_conversation(bench)


async def test_a_blank_steer_before_the_first_round_stops_without_a_model_call() -> None:
    bench = Bench()
    await bench.say("Hello.")
    await bench.signal(STEER, "")

    await bench.work()

    assert (bench.model.requests, bench.exits[0].outcome) == ([], Outcome.STOPPED)
    await check_conversation(bench)


@pytest.mark.parametrize("cancellable", [True, False])
async def test_a_blank_steer_during_a_tool_ends_the_turn_after_it(cancellable: bool) -> None:
    echo = DemoTool(cancellable=cancellable)
    bench = Bench(call("demo.echo", {}), tools=[echo])

    await steer_in_a_tool(bench, echo, (STEER, " "))

    assert len(bench.model.requests) == 1
    assert bench.exits[0].outcome is Outcome.STOPPED
    assert states(bench) == [SignalState.APPLIED]
    await check_conversation(bench)


async def test_each_answer_of_a_turn_is_streamed_from_its_own_beginning() -> None:
    bench = Bench(answer("One, at some length."), answer("Two, at some length."), chunk_chars=5)
    await bench.say("Hello.")
    worker = bench.hire()
    say_before_close(bench, worker, (STEER, "shorter"))

    await worker.work()

    deltas = [event for event in await bench.published() if isinstance(event.data, ChatDelta)]
    for round_number in (1, 2):
        events = [event.data for event in deltas if event.round == round_number and event.data.channel == "answer"]
        assert [delta.index for delta in events] == list(range(len(events)))
        assert "".join(delta.text for delta in events).startswith("One" if round_number == 1 else "Two")
    completions = [block for block in bench.blocks if isinstance(block.body, CompletionBody)]
    assert all(block.ts_first is not None and block.ts_first <= block.ts for block in completions)
