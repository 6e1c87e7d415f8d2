"""What a person says while a turn runs: followups, steers and cancels at every moment of it."""

import asyncio

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.replies import answer, call, cut_answer
from turn_harness.signals import CANCEL, FOLLOWUP, STEER, hanging, interrupt, say_before_close, states
from turn_harness.tools import DemoTool

from chat_proc.agent.kit import TurnLimits
from everturn.events.model import TERMINAL_TYPES
from everturn.timeline.blocks import AttemptBody, CompletionBody, PromptBody, SignalBody, ThinkingBody, ToolResultBody
from everturn.timeline.turns import Outcome, SignalKind, SignalState, TurnStatus
from everturn.turns.model import Commit, Effect, EffectState


async def test_a_followup_between_two_rounds_is_folded_into_the_next() -> None:
    echo = DemoTool()
    echo.go_on.clear()
    bench = Bench(call("demo.echo", {}), answer("Both."), tools=[echo])
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await echo.started.wait()

    await bench.say("And this.")
    echo.go_on.set()
    await task

    assert states(bench) == [SignalState.APPLIED]
    assert "And this." in str(bench.model.requests[1])
    assert bench.types.index("user.followup") == bench.types.index("react.round.start", 1) + 1
    await check_conversation(bench)


async def test_a_followup_in_the_last_round_opens_one_more_round() -> None:
    echo = DemoTool()
    echo.go_on.clear()
    bench = Bench(
        call("demo.echo", {}), call("demo.echo", {}), answer("Both."), tools=[echo], limits=TurnLimits(rounds=2)
    )
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await echo.started.wait()

    await bench.say("And this.")
    echo.go_on.set()
    await task

    assert echo.calls.total() == 2
    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert bench.exits[0].rounds == 3
    await check_conversation(bench)


async def test_a_followup_while_the_turn_finishes_opens_one_more_round() -> None:
    bench = Bench(answer("One."), answer("Two."))
    await bench.say("Hello.")
    worker = bench.hire()
    say_before_close(bench, worker, (FOLLOWUP, "And two?"))

    await worker.work()

    assert bench.texts(CompletionBody) == ["One.", "Two."]
    assert len(bench.turn_rows) == 1
    assert bench.state().turns[0].answer == "Two."
    await check_conversation(bench)


async def test_the_first_answer_stays_visible_when_the_second_fails() -> None:
    bench = Bench(answer("One."), "<channel:action>no</channel:action>", "", limits=TurnLimits(max_repairs=0))
    await bench.say("Hello.")
    worker = bench.hire()
    say_before_close(bench, worker, (FOLLOWUP, "And two?"))

    await worker.work()

    (turn,) = bench.state().turns
    assert turn.status == "failed"
    assert turn.answer == "One."
    await check_conversation(bench)


async def test_followups_give_at_most_as_many_rounds_as_the_turn_had() -> None:
    bench = Bench(*[answer(f"{n}.") for n in range(4)], limits=TurnLimits(rounds=1))
    await bench.say("Hello.")
    worker = bench.hire()

    async def always_more(commit: Commit) -> None:
        if commit.close is not None and len(bench.platform.signals) < 3:
            await bench.signal(FOLLOWUP, f"more {len(bench.platform.signals)}")

    worker.timelines.before_commit = always_more
    await worker.work()

    assert [turn.ordinal for turn in bench.turn_rows] == [1, 2]
    assert sorted(states(bench)) == ["applied", "promoted", "promoted"]
    await check_conversation(bench)


async def test_a_followup_after_a_cap_becomes_the_next_turn() -> None:
    bench = Bench(
        call("demo.echo", {}), answer("Capped."), answer("Next."), tools=[DemoTool()], limits=TurnLimits(rounds=1)
    )
    await bench.say("Hello.")
    worker = bench.hire()
    say_before_close(bench, worker, (FOLLOWUP, "Late"), (FOLLOWUP, "and later."))

    await worker.work()

    assert [exit_body.outcome for exit_body in bench.exits] == [Outcome.CAPPED, Outcome.COMPLETED]
    assert bench.texts(PromptBody) == ["Hello.", "Late\n\nand later."]
    assert states(bench) == [SignalState.PROMOTED] * 2
    await check_conversation(bench)


async def test_a_steer_cuts_the_generation_and_the_next_round_hears_it() -> None:
    bench = Bench(hanging(cut_answer("Wrong wa")), answer("Right."))
    await bench.say("Hello.")

    await interrupt(bench, (STEER, "The other way."))

    assert bench.texts(AttemptBody) == ["Wrong wa"]
    assert bench.texts(CompletionBody) == ["Right."]
    assert "The other way." in str(bench.model.requests[1])
    assert bench.platform.usage[0][1].estimated
    await check_conversation(bench)


async def test_a_steer_before_the_first_token_costs_no_round() -> None:
    bench = Bench(hanging(), answer("Right."))
    await bench.say("Hello.")

    await interrupt(bench, (STEER, "The other way."))

    assert bench.exits[0].rounds == 1
    await check_conversation(bench)


async def test_usage_is_not_written_without_blocks_because_that_could_be_written_twice() -> None:
    echo = DemoTool()
    echo.go_on.clear()
    bench = Bench(call("demo.echo", {}), hanging(), answer("Right."), tools=[echo])
    commits: list[Commit] = []

    async def note(commit: Commit) -> None:
        commits.append(commit)

    worker = bench.hire()
    worker.timelines.before_commit = note
    await bench.say("Hello.")

    task = asyncio.create_task(worker.work())
    await echo.started.wait()
    await bench.signal(FOLLOWUP, "And this.")
    echo.go_on.set()
    await until(lambda: len(bench.model.requests) == 2 and bench.model.unfinished == 1)
    await bench.signal(STEER, "The other way.")
    await task

    assert all(commit.blocks for commit in commits if commit.usage)
    assert len(bench.platform.usage) == 3
    await check_conversation(bench)


async def test_a_steer_that_cuts_off_notes_takes_them_back() -> None:
    bench = Bench(hanging('<channel:action>{"action": "call_tool", "notes": "I will'), answer("Right."))
    await bench.say("Hello.")

    await interrupt(bench, (STEER, "No."))

    assert [text.text for text in bench.state().turns[0].texts] == ["Right."]
    await check_conversation(bench)


async def test_a_blank_steer_stops_with_what_exists() -> None:
    bench = Bench(hanging(cut_answer("As far as I g")))
    await bench.say("Hello.")

    await interrupt(bench, (STEER, " "))

    assert bench.exits[0].outcome is Outcome.STOPPED
    assert bench.state().turns[0].answer == "As far as I g"
    await check_conversation(bench)


@pytest.mark.parametrize(("kind", "text"), [(CANCEL, ""), (STEER, " "), (STEER, "The other way.")])
@pytest.mark.parametrize("half", ["<", "</channel:thi", "</channel:thinking"])
async def test_half_a_closing_tag_is_neither_shown_nor_stored_after_a_stop(
    kind: SignalKind, text: str, half: str
) -> None:
    bench = Bench(hanging("<channel:thinking>I think.", half), answer("Right."))
    await bench.say("Hello.")

    await interrupt(bench, (kind, text))

    thoughts = [shown.text for shown in bench.state().turns[0].texts if shown.channel == "thinking"]
    assert thoughts == ["I think."]
    assert bench.texts(ThinkingBody) == ["I think."]
    await check_conversation(bench)


async def test_a_steer_cancels_a_tool_that_can_be_cancelled() -> None:
    echo = DemoTool()
    echo.go_on.clear()
    bench = Bench(call("demo.echo", {}), answer("Right."), tools=[echo])
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await echo.started.wait()

    await bench.signal(STEER, "Not that.")
    await task

    assert [body.status for body in results(bench)] == ["cancelled"]
    assert echo.effects.total() == 0
    await check_conversation(bench)


async def test_a_steer_waits_for_a_tool_that_cannot_be_cancelled() -> None:
    echo = DemoTool(cancellable=False)
    echo.go_on.clear()
    bench = Bench(call("demo.echo", {}), answer("Right."), tools=[echo])
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await echo.started.wait()

    await bench.signal(STEER, "Not that.")
    echo.go_on.set()
    await task

    assert [body.status for body in results(bench)] == ["ok"]
    await check_conversation(bench)


async def test_an_irreversible_tool_that_is_cancelled_is_ambiguous() -> None:
    send = DemoTool("demo.send", effect=Effect.IRREVERSIBLE)
    send.go_on.clear()
    bench = Bench(call("demo.send", {}), answer("Right."), tools=[send])
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await send.started.wait()

    await bench.signal(STEER, "Not that.")
    await task

    assert [body.status for body in results(bench)] == ["ambiguous"]
    assert [row.state for row in bench.platform.effects.values()] == [EffectState.AMBIGUOUS]
    await check_conversation(bench)


def results(bench: Bench) -> list[ToolResultBody]:
    return [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]


async def check_cancelled(bench: Bench) -> None:
    assert bench.exits[0].outcome is Outcome.CANCELLED
    assert bench.turn_rows[0].status is TurnStatus.CANCELLED
    assert len([event for event in await bench.published() if event.type in TERMINAL_TYPES]) == 1
    await check_conversation(bench)


async def test_a_cancel_before_the_first_round_makes_no_model_call() -> None:
    bench = Bench()
    await bench.say("Hello.")
    await bench.signal(CANCEL)

    await bench.work()

    assert bench.model.requests == []
    await check_cancelled(bench)


async def test_a_cancel_during_generation_keeps_what_was_shown() -> None:
    bench = Bench(hanging(cut_answer("As far as I g")))
    await bench.say("Hello.")

    await interrupt(bench, (CANCEL, ""))

    assert bench.texts(CompletionBody) == ["As far as I g"]
    await check_cancelled(bench)


async def test_a_cancel_during_a_tool_ends_the_turn() -> None:
    echo = DemoTool()
    echo.go_on.clear()
    bench = Bench(call("demo.echo", {}), tools=[echo])
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await echo.started.wait()

    await bench.signal(CANCEL)
    await task

    await check_cancelled(bench)


async def test_a_cancel_while_the_turn_finishes_still_counts() -> None:
    bench = Bench(answer("Done."))
    await bench.say("Hello.")
    worker = bench.hire()
    say_before_close(bench, worker, (CANCEL, ""))

    await worker.work()

    assert states(bench) == [SignalState.APPLIED]
    await check_cancelled(bench)


async def test_a_cancel_during_the_closing_call_ends_the_turn() -> None:
    bench = Bench("<channel:action>no</channel:action>", hanging(cut_answer("So f")), limits=TurnLimits(max_repairs=0))
    await bench.say("Hello.")

    await interrupt(bench, (CANCEL, ""), when=2)

    assert bench.texts(CompletionBody) == ["So f"]
    await check_cancelled(bench)


async def test_two_cancels_cancel_once() -> None:
    bench = Bench(hanging())
    await bench.say("Hello.")

    await interrupt(bench, (CANCEL, ""), (CANCEL, ""))

    assert states(bench) == [SignalState.APPLIED] * 2
    await check_cancelled(bench)


async def test_a_second_cancel_while_the_first_is_written_is_answered_too() -> None:
    bench = Bench()
    await bench.say("Hello.")
    await bench.signal(CANCEL)
    worker = bench.hire()
    say_before_close(bench, worker, (CANCEL, ""))

    await worker.work()

    assert SignalState.ACCEPTED not in states(bench)
    await check_cancelled(bench)


async def test_messages_after_a_cancel_become_the_next_turn() -> None:
    bench = Bench(hanging(), answer("New work."))
    await bench.say("Hello.")

    await interrupt(bench, (FOLLOWUP, "before"), (CANCEL, ""), (FOLLOWUP, "after"))

    assert states(bench) == [SignalState.APPLIED, SignalState.APPLIED, SignalState.PROMOTED]
    assert bench.texts(PromptBody) == ["Hello.", "after"]
    assert [exit_body.outcome for exit_body in bench.exits] == [Outcome.CANCELLED, Outcome.COMPLETED]
    await check_conversation(bench)


async def test_the_order_counts_in_the_same_way_while_the_turn_finishes() -> None:
    bench = Bench(answer("Done."), answer("New work."))
    await bench.say("Hello.")
    worker = bench.hire()
    say_before_close(bench, worker, (FOLLOWUP, "before"), (CANCEL, ""), (FOLLOWUP, "after"))

    await worker.work()

    assert bench.texts(PromptBody) == ["Hello.", "after"]
    assert [exit_body.outcome for exit_body in bench.exits] == [Outcome.CANCELLED, Outcome.COMPLETED]
    await check_conversation(bench)


async def test_a_steer_and_a_followup_together_are_folded_in_order() -> None:
    bench = Bench(hanging(), answer("Right."))
    await bench.say("Hello.")

    await interrupt(bench, (STEER, "left"), (FOLLOWUP, "and right"))

    assert bench.texts(SignalBody) == ["left", "and right"]
    await check_conversation(bench)


@pytest.mark.parametrize("change", ["edit", "retract"])
async def test_a_signal_that_changes_while_it_is_folded_is_read_again(change: str) -> None:
    echo = DemoTool()
    echo.go_on.clear()
    bench = Bench(call("demo.echo", {}), answer("Fine."), tools=[echo])
    await bench.say("Hello.")
    worker = bench.hire()
    task = asyncio.create_task(worker.work())
    await echo.started.wait()
    signal_id = await bench.signal(FOLLOWUP, "old words")

    async def hook(commit: Commit) -> None:
        if commit.signals:
            worker.timelines.before_commit = None
            who = bench.platform.conversations[bench.conversation_id].principal
            if change == "edit":
                await bench.inbox.save_signal_text(who, bench.conversation_id, signal_id, "new words")
            else:
                await bench.inbox.retract_signal(who, bench.conversation_id, signal_id)

    worker.timelines.before_commit = hook
    echo.go_on.set()
    await task

    assert bench.texts(SignalBody) == (["new words"] if change == "edit" else [])
    assert bench.exits[0].outcome is Outcome.COMPLETED


async def test_a_cancel_withdrawn_during_the_commit_does_not_end_the_turn() -> None:
    bench = Bench(answer("Done after all."))
    await bench.say("Hello.")
    signal_id = await bench.signal(CANCEL)
    worker = bench.hire()

    async def hook(commit: Commit) -> None:
        if commit.close is not None:
            worker.timelines.before_commit = None
            who = bench.platform.conversations[bench.conversation_id].principal
            await bench.inbox.retract_signal(who, bench.conversation_id, signal_id)

    worker.timelines.before_commit = hook
    await worker.work()

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert bench.texts(CompletionBody) == ["Done after all."]


async def test_a_bell_that_is_lost_is_made_up_for_by_the_next_commit() -> None:
    echo = DemoTool()
    echo.go_on.clear()
    bench = Bench(call("demo.echo", {}), tools=[echo])
    await bench.say("Hello.")
    worker = bench.hire()
    worker.deaf = True

    async def hook(commit: Commit) -> None:
        if commit.effects and not bench.platform.signals:
            await bench.signal(CANCEL)

    worker.timelines.before_commit = hook
    await worker.work()

    await check_cancelled(bench)
