"""External events: forms, alerts and the like, whenever they come."""

import asyncio

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.signals import CANCEL, FOLLOWUP, STEER, states
from turn_harness.tools import DemoTool

from chat_proc.agent.kit import TurnLimits
from everturn.conversations.model import ConversationState
from everturn.timeline.blocks import AttachmentTextBody, BlockType, DeferralBody, EventBody, PromptBody, SignalBody
from everturn.timeline.turns import ExternalEvent, Outcome, SignalState
from everturn.turns.model import Commit

FORM = ExternalEvent("form", {"city": "Oslo"})
GENEROUS = ExternalEvent("form", {"city": "Oslo"}, iteration_credit=2)
RECORD = ExternalEvent("alert", {"level": "low"}, reactive=False)


async def during_a_tool(bench: Bench, echo: DemoTool, *events: ExternalEvent) -> None:
    echo.go_on.clear()
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await echo.started.wait()
    for event in events:
        await bench.tell(event, "It happened.")
    echo.go_on.set()
    await task


async def before_close(bench: Bench, *events: ExternalEvent) -> None:
    await bench.say("Hello.")
    left, worker = list(events), bench.hire()

    async def hook(commit: Commit) -> None:
        while commit.close is not None and left:
            await bench.tell(left.pop(0), "It happened.")

    worker.timelines.before_commit = hook
    await worker.work()


@pytest.mark.parametrize("event", [FORM, RECORD])
async def test_the_model_sees_an_event_once_in_the_next_round(event: ExternalEvent) -> None:
    echo = DemoTool()
    bench = Bench(call("demo.echo", {}), answer("Seen."), tools=[echo])

    await during_a_tool(bench, echo, event)

    (block,) = [block for block in bench.blocks if block.type is BlockType.EXTERNAL_EVENT]
    assert block.ref == f"ar:{bench.turn_rows[0].id}.external.{event.kind}.{next(iter(bench.platform.signals))}"
    assert block.round == 2
    assert str(bench.model.requests[1]).count("It happened.") >= 1
    assert str(next(iter(event.payload.values()))) in str(bench.model.requests[1])
    assert states(bench) == [SignalState.APPLIED]
    (reported,) = bench.state().turns[0].signals
    assert reported.event is not None
    assert (reported.kind, reported.event.kind, reported.round) == ("event", event.kind, 2)
    await check_conversation(bench)


async def test_simultaneous_events_are_in_order() -> None:
    echo = DemoTool()
    bench = Bench(call("demo.echo", {}), answer("Seen."), tools=[echo])

    await during_a_tool(bench, echo, FORM, RECORD, FORM)

    blocks = [block for block in bench.blocks if block.type is BlockType.EXTERNAL_EVENT]
    assert [getattr(block.body, "kind", "") for block in blocks] == ["form", "alert", "form"]
    assert [block.seq for block in blocks] == list(range(blocks[0].seq, blocks[0].seq + 3))
    await check_conversation(bench)


async def test_a_reactive_event_before_the_end_defers_the_answer() -> None:
    bench = Bench(answer("One."), answer("With the form."))

    await before_close(bench, FORM)

    assert len(bench.texts(DeferralBody)) == 1
    assert bench.state().turns[0].answer == "With the form."
    assert len(bench.turn_rows) == 1
    await check_conversation(bench)


async def test_a_recorded_event_defers_nothing() -> None:
    bench = Bench(answer("One."), answer("Two."))

    await before_close(bench, RECORD)

    assert bench.texts(DeferralBody) == []
    assert bench.types[-3:] == ["assistant.completion", "event.external", "react.exit"]
    assert states(bench) == [SignalState.APPLIED]
    await bench.say("What happened?")
    await bench.work()
    assert "It happened." in str(bench.model.requests[1])
    await check_conversation(bench)


async def test_an_event_adds_rounds_only_when_it_says_so() -> None:
    for event, rounds in ((FORM, 2), (GENEROUS, 4)):
        echo = DemoTool()
        calls = [call("demo.echo", {"text": str(n)}) for n in range(5)]
        bench = Bench(*calls, *[answer("Closed.")], tools=[echo], limits=TurnLimits(rounds=2))

        await during_a_tool(bench, echo, event)

        assert f"Round 2/{rounds}" in str(bench.model.requests[1])


async def test_a_reactive_event_without_a_round_begins_the_next_turn() -> None:
    bench = Bench(answer("One."), answer("About the form."), limits=TurnLimits(rounds=1))

    await before_close(bench, FORM)

    first, second = bench.turn_rows
    assert [exit_body.outcome for exit_body in bench.exits] == [Outcome.COMPLETED] * 2
    assert states(bench) == [SignalState.PROMOTED]
    (block,) = [block for block in bench.blocks if isinstance(block.body, EventBody)]
    assert (block.turn_id, block.round, getattr(block.body, "payload", {})) == (second.id, 0, {"city": "Oslo"})
    assert bench.texts(PromptBody) == ["Hello."]
    assert "Oslo" in str(bench.model.requests[1])
    assert first.id != second.id
    await check_conversation(bench)


async def test_a_reactive_event_opens_the_turn_of_an_idle_conversation() -> None:
    bench = Bench(answer("One."), answer("About the form."))
    await bench.say("Hello.")
    await bench.work()

    receipt = await bench.tell(FORM, "The form was sent.")
    await bench.work()

    assert receipt.turn_id == bench.turn_rows[1].id
    assert [block.type.value for block in bench.blocks if block.turn_id == receipt.turn_id][:2] == [
        "turn.header",
        "event.external",
    ]
    turn = bench.state().turns[1]
    assert (turn.text, turn.answer) == ("", "About the form.")
    assert [(signal.kind, signal.state, signal.round) for signal in turn.signals] == [("event", "applied", 0)]
    await check_conversation(bench)


async def test_an_event_can_begin_and_title_a_conversation() -> None:
    bench = Bench(answer("About the form."))

    await bench.tell(FORM, "The form of Ann was sent.")
    await bench.work()

    assert bench.platform.conversations[bench.conversation_id].title == "The form of Ann was sent."
    await check_conversation(bench)


async def test_a_recorded_event_waits_for_the_next_turn() -> None:
    bench = Bench(answer("One."), answer("Two."))
    await bench.say("Hello.")
    await bench.work()

    receipt = await bench.tell(RECORD, "It happened.")
    await bench.work()
    assert (receipt.turn_id, len(bench.model.requests)) == (None, 1)
    assert bench.platform.conversations[bench.conversation_id].state is ConversationState.IDLE

    await bench.say("What happened?")
    await bench.work()

    assert states(bench) == [SignalState.PROMOTED]
    second = [block for block in bench.blocks if block.turn_id == bench.turn_rows[1].id and block.round == 0]
    assert [block.type.value for block in second] == ["turn.header", "user.prompt", "event.external"]
    assert "low" in str(bench.model.requests[1])
    await check_conversation(bench)


async def test_an_event_does_not_end_the_phase_after_a_steer() -> None:
    echo = DemoTool()
    bench = Bench(call("demo.echo", {}), call("demo.echo", {}), answer("Short."), tools=[echo])
    echo.go_on.clear()
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await echo.started.wait()
    await bench.signal(STEER, "Wrap up.")
    await bench.tell(FORM)
    echo.go_on.set()
    await task

    assert echo.calls.total() == 1
    assert bench.model.requests[2].max_output_tokens == 3000
    await check_conversation(bench)


async def test_messages_before_a_cancel_are_recorded_with_it() -> None:
    bench = Bench()
    await bench.say("Hello.")
    await bench.tell(FORM, "sent")
    await bench.tell(RECORD, "noted")
    await bench.signal(CANCEL)

    await bench.work()

    assert bench.exits[0].outcome is Outcome.CANCELLED
    assert bench.texts(EventBody) == ["sent", "noted"]
    await check_conversation(bench)


async def test_files_of_signals_have_previews_and_do_not_collide() -> None:
    echo = DemoTool()
    echo.go_on.clear()
    bench = Bench(call("demo.echo", {}), answer("Both."), tools=[echo])
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await echo.started.wait()
    said = await bench.signal(FOLLOWUP, "See.", uploads=(bench.upload("a.csv", b"north,1"),))
    reported = await bench.tell(FORM, "Sent.", uploads=(bench.upload("a.csv", b"south,2"),))
    echo.go_on.set()
    await task

    request = str(bench.model.requests[1])
    turn_id = bench.turn_rows[0].id
    assert f"fi:{turn_id}.external.followup.attachments/{said}/a.csv" in request
    assert f"fi:{turn_id}.external.form.attachments/{reported.signal_id}/a.csv" in request
    assert bench.texts(AttachmentTextBody) == ["north,1", "south,2"]
    paths = [artifact.path for artifact in bench.platform.conversations[bench.conversation_id].artifacts]
    assert len(set(paths)) == 2
    await check_conversation(bench)


async def test_an_unreadable_file_keeps_the_text_of_its_signal() -> None:
    echo = DemoTool()
    echo.go_on.clear()
    bench = Bench(call("demo.echo", {}), answer("Fine."), tools=[echo])
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await echo.started.wait()
    upload = bench.upload("a.csv", b"north,1")
    await bench.signal(FOLLOWUP, "See.", uploads=(upload,))
    bench.objects.stored.clear()
    echo.go_on.set()
    await task

    assert bench.texts(SignalBody) == ["See."]
    assert bench.texts(AttachmentTextBody) == []
    assert bench.exits[0].outcome is Outcome.COMPLETED


async def test_the_files_of_a_late_signal_go_with_it_into_the_next_turn() -> None:
    bench = Bench(answer("One."), answer("Two."), limits=TurnLimits(rounds=1))
    await bench.say("Hello.")
    worker, left = bench.hire(), [1]

    async def hook(commit: Commit) -> None:
        if commit.close is not None and left:
            left.clear()
            await bench.tell(FORM, "Sent.", uploads=(bench.upload("a.csv", b"north,1"),))

    worker.timelines.before_commit = hook
    await worker.work()

    assert "north,1" in str(bench.model.requests[1])
    (event,) = bench.turn_rows[1].request.events
    assert event.attachments[0].ref == f"fi:{bench.turn_rows[0].id}.external.form.attachments/{event.id}/a.csv"
    await check_conversation(bench)


async def test_a_folded_signal_is_shown_once_after_a_worker_crash() -> None:
    echo = DemoTool()
    echo.go_on.clear()
    bench = Bench(call("demo.echo", {}), answer("Seen."), tools=[echo])
    await bench.say("Hello.")
    worker = bench.hire()
    task = asyncio.create_task(worker.work())
    await echo.started.wait()
    await bench.tell(FORM, "It happened.")

    async def die_after(commit: Commit) -> None:
        if commit.signals:
            worker.gate.dead.set()

    worker.timelines.before_commit = die_after
    echo.go_on.set()
    await task
    bench.expire_lease()
    await bench.work()

    assert len([block for block in bench.blocks if block.type is BlockType.EXTERNAL_EVENT]) == 1
    assert states(bench) == [SignalState.APPLIED]
    await check_conversation(bench, ends_may_repeat=True)
