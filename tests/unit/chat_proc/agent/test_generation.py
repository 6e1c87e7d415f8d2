import asyncio
from dataclasses import replace

import pytest
from helpers.recorded_spans import KeptTracing
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.replies import answer, call, cut_answer

from chat_proc.agent.kit import TurnLimits
from everturn.events.model import ChatDelta, ChatRewind
from everturn.models.port import (
    ContextLimitExceeded,
    FailureKind,
    ModelFailed,
    ModelRequest,
    ModelTraits,
    ModelUsage,
    PromptMessage,
    TextPart,
)
from everturn.models.tokens import estimate_request
from everturn.timeline.blocks import CompletionBody, NoticeBody, ThinkingBody
from everturn.timeline.turns import Outcome, SignalKind
from everturn_testing.models.scripted_model import Fail, Finish, Pause, Say, Script, ScriptedModel, Think


async def run(bench: Bench) -> list[ChatDelta]:
    await bench.say("Hello.")
    await bench.work()
    return [event.data for event in await bench.published() if isinstance(event.data, ChatDelta)]


async def test_thinking_notes_and_answer_are_shown_while_they_are_written() -> None:
    bench = Bench(answer("The answer.", notes="The notes.", thinking=" Thoughts."), chunk_chars=4)

    deltas = await run(bench)

    shown = {key: "".join(d.text for d in deltas if d.channel == key) for key in ("thinking", "notes", "answer")}
    assert shown == {"thinking": "Thoughts.", "notes": "The notes.", "answer": "The answer."}
    assert {delta.marker for delta in deltas} == {"thinking", "timeline_text", "answer"}


async def test_canvas_content_is_shown_in_the_format_of_its_path() -> None:
    params = {"path": "files/page.html", "channel": "canvas", "content": "<b>x</b>"}
    bench = Bench(call("react.write", params), answer("Done."))

    deltas = await run(bench)

    (canvas,) = [delta for delta in deltas if delta.channel == "canvas" and delta.text]
    assert (canvas.format, canvas.artifact, canvas.text) == ("html", "files/page.html", "<b>x</b>")


@pytest.mark.parametrize(
    "order",
    [("path", "channel", "content", "kind"), ("path", "channel", "kind", "content"), ("channel", "path", "content")],
)
async def test_a_file_streams_if_its_content_follows_path_and_channel(order: tuple[str, ...]) -> None:
    values = {"path": "files/a.md", "channel": "canvas", "kind": "file", "content": "0123456789" * 2_000}
    bench = Bench(call("react.write", {name: values[name] for name in order}), answer("Done."), chunk_chars=1_000)

    deltas = await run(bench)

    assert len([delta for delta in deltas if delta.channel == "canvas" and delta.text]) > 1
    assert not any(isinstance(event.data, ChatRewind) for event in await bench.published())


@pytest.mark.parametrize(
    "order", [("content", "path", "channel"), ("path", "content", "channel"), ("channel", "content", "path")]
)
async def test_a_file_with_another_parameter_order_is_not_streamed(
    order: tuple[str, ...],
) -> None:
    values = {"path": "files/a.md", "channel": "canvas", "content": "0123456789" * 5}
    bench = Bench(call("react.write", {name: values[name] for name in order}), answer("Done."), chunk_chars=4)

    deltas = await run(bench)

    assert not [delta for delta in deltas if delta.channel == "canvas"]
    (turn,) = bench.state().turns
    assert [text.text for text in turn.texts if text.channel == "canvas"] == [values["content"]]
    await check_conversation(bench)


async def test_what_is_written_for_internal_use_is_not_shown() -> None:
    bench = Bench(call("react.write", {"path": "files/a.md", "channel": "internal", "content": "x"}), answer("Done."))

    assert {delta.channel for delta in await run(bench)} == {"answer"}


async def test_reasoning_follows_all_thinking_of_the_reply() -> None:
    bench = Bench([Think("Deep."), Say(answer("A.", thinking="Aloud."))])

    await run(bench)

    bodies = [block.body for block in bench.blocks if isinstance(block.body, ThinkingBody)]
    assert [(body.instance, body.text) for body in bodies] == [(0, "Aloud."), (1000, "Deep.")]


async def test_the_usage_is_what_the_provider_counted() -> None:
    bench = Bench([Say(answer("A.")), Finish("stop", ModelUsage(7, 3, 2, 1, 0.5))])

    await run(bench)

    ((_, usage),) = bench.platform.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (7, 3, 2, 1)
    assert (usage.model, usage.role, usage.cost_usd, usage.estimated) == ("scripted", "decision", 0.5, False)


async def test_the_usage_of_a_stopped_reply_is_estimated() -> None:
    bench = Bench([Say(cut_answer("Half of it")), Pause(asyncio.Event())])
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await until(lambda: bench.model.unfinished == 1)
    for _ in range(50):
        await asyncio.sleep(0)

    await bench.signal(SignalKind.STEER)
    await task

    ((_, usage),) = bench.platform.usage
    assert usage.estimated
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0
    assert bench.texts(CompletionBody) == ["Half of it"]


async def test_a_round_that_our_time_limit_ended_is_paid() -> None:
    silent = ModelFailed("silent", kind="timeout")
    silent.abandoned = True
    bench = Bench([Fail(silent)], fallback=second(answer("From the second.")))
    taught = ModelRequest((PromptMessage("user", (TextPart("x" * 2_000),)),), 1)
    bench.ratios.learn("scripted", taught, ModelUsage(input_tokens=1_000))

    await run(bench)

    first, last = (usage for _, usage in bench.platform.usage)
    tokens = estimate_request(bench.model.requests[0], bench.ratios.of("scripted"))
    assert (first.model, first.input_tokens, first.output_tokens, first.estimated) == ("scripted", tokens, 0, True)
    assert (last.model, last.estimated) == ("second", False)


def second(*scripts: Script) -> ScriptedModel:
    return ScriptedModel(scripts, traits=ModelTraits("second", 100_000, True, True))


async def test_the_fallback_answers_and_is_booked_under_its_name() -> None:
    bench = Bench([Fail(ModelFailed("down"))], fallback=second(answer("From the second.")))

    await run(bench)

    assert bench.texts(CompletionBody) == ["From the second."]
    assert [usage.model for _, usage in bench.platform.usage] == ["second"]
    await check_conversation(bench)


async def test_models_of_the_same_name_on_two_endpoints_are_booked_apart() -> None:
    traits = ModelTraits("m", 200_000, images=False, documents=False, provider="openai", endpoint="one")
    first = ScriptedModel([[Fail(ModelFailed("down"))], answer("Hello.")], traits=traits)
    other = ScriptedModel([answer("Hi.")], traits=replace(traits, endpoint="two"))
    bench = Bench(model=first, fallback=other)

    await run(bench)
    await run(bench)

    assert [usage.model for _, usage in bench.platform.usage] == ["two:m", "one:m"]


async def test_each_call_of_a_round_is_a_span_with_the_number_of_the_round() -> None:
    tracing = KeptTracing()
    bench = Bench([Fail(ModelFailed("down"))], fallback=second(answer("From the second.")), tracing=tracing)

    await run(bench)

    calls = [span for span in tracing.spans if span.name.startswith("chat ")]
    down, good = calls
    assert (down.name, down.failed) == ("chat scripted", "ModelFailed")
    assert (good.name, good.failed) == ("chat second", "")
    assert [span.attributes["everturn.round"] for span in calls] == [1, 1]
    assert {span.attributes["everturn.model.role"] for span in calls} == {"decision"}
    assert good.attributes["gen_ai.usage.input_tokens"] == 100


@pytest.mark.parametrize(("kind", "tries"), [("cut_reply", 3), ("timeout", 2)])
async def test_the_fallback_answers_after_a_rewind(kind: FailureKind, tries: int) -> None:
    failure = ModelFailed("cut", retryable=True, partial=True, kind=kind)
    broken = [Say(cut_answer("Half of an answer")), Fail(failure)]
    bench = Bench(broken, broken, broken, fallback=second(answer("Whole.")))

    await run(bench)

    assert bench.texts(CompletionBody) == ["Whole."]
    assert [usage.model for _, usage in bench.platform.usage] == ["scripted"] * tries + ["second"]
    assert any(isinstance(event.data, ChatRewind) for event in await bench.published())
    await check_conversation(bench)


async def test_a_turn_reports_the_first_failure_if_the_fallback_fails() -> None:
    bench = Bench(
        [Fail(ModelFailed("first is down"))],
        fallback=second([Fail(ModelFailed("second is down"))]),
    )

    await run(bench)

    error = bench.exits[0].error
    assert error is not None
    assert "first is down" in error.detail
    await check_conversation(bench)


async def test_a_turn_that_has_done_something_ends_with_an_account_of_it_if_its_models_fail() -> None:
    bench = Bench(
        call("react.write", {"path": "files/a.md", "channel": "canvas", "content": "x"}),
        [Fail(ModelFailed("first is down"))],
        "Now it works.",
        fallback=second([Fail(ModelFailed("second is down"))]),
    )

    await run(bench)
    await bench.say("Try again.")
    await bench.work()

    assert [(exit.outcome, exit.cut_reason) for exit in bench.exits] == [
        (Outcome.CUT, "provider_error"),
        (Outcome.COMPLETED, None),
    ]
    account, last = bench.texts(CompletionBody)
    assert account.endswith("- react.write: done") and last == "Now it works."
    await check_conversation(bench)


async def test_a_request_that_is_too_long_is_not_sent_to_the_fallback() -> None:
    fallback = second(answer("No."))
    bench = Bench([Fail(ContextLimitExceeded())], fallback=fallback)

    await run(bench)

    assert fallback.requests == []


async def test_the_closing_call_has_the_fallback_too() -> None:
    bench = Bench(
        call("react.write", {"path": "files/a.md", "channel": "internal", "content": "x"}),
        [Fail(ModelFailed("down"))],
        fallback=second(answer("Closed.")),
        limits=TurnLimits(rounds=1),
    )

    await run(bench)

    assert bench.exits[0].outcome is Outcome.CAPPED


@pytest.mark.timeout(30)
async def test_a_reply_that_never_ends_is_cut_at_its_cap() -> None:
    class Endless(ScriptedModel):
        async def _play(self, script: object):
            while True:
                async for piece in super()._play([Say("<channel:thinking>" + "x" * 100_000)]):
                    if not hasattr(piece, "usage"):
                        yield piece

    bench = Bench(model=Endless([""], chunk_chars=100_000))
    bench.model.add("")
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())

    await until(lambda: bool(bench.texts(NoticeBody)))
    task.cancel()

    assert "cut off after" in bench.texts(NoticeBody)[0]
