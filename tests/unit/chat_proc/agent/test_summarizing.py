"""One summary: what the model is asked, which replies count, and what it costs."""

import asyncio

import pytest
from helpers.recorded_spans import KeptTracing
from prometheus_client import REGISTRY
from turn_harness.harness import until

from chat_proc.agent.compaction import SummaryWriter, build_summary_request
from chat_proc.timeline.compaction.cut import ContextLimits, Cut, Reach, Snapshot, choose_history, choose_rounds
from chat_proc.timeline.compaction.summary import build_summary, draft_summary
from everturn.core.failpoints import FailpointRaised, Failpoints
from everturn.models.port import ModelFailed, ModelRequest, ModelUsage, TextPart
from everturn.models.tokens import CharsPerToken
from everturn_testing.long_conversations import play_conversation
from everturn_testing.models.scripted_model import (
    SCRIPTED_TRAITS,
    Fail,
    Finish,
    Pause,
    Say,
    Script,
    ScriptedModel,
    Think,
)
from everturn_testing.models.scripted_model import Cut as CutOff
from everturn_testing.timeline import NOW, TimelineBuilder

GOOD = "## Active request\n- all of it\n## Done\n- half of it\n"
RATIO = CharsPerToken(4.0)


def look(timeline: TimelineBuilder) -> Snapshot:
    limits = ContextLimits(8_000)
    return Snapshot(tuple(timeline.blocks), timeline.turn_id, timeline.round, NOW, 400, limits, RATIO)


def history(snapshot: Snapshot) -> Cut:
    cut = choose_history(snapshot.blocks, snapshot.shown, snapshot.turn_id, excess_tokens=1_000_000)
    assert cut is not None
    return cut


CONVERSATION = look(play_conversation(["big", "file", "turn", "followup", "turn"]))


def writer(*scripts: Script, failpoint: str = "", call_s: float = 5.0) -> tuple[SummaryWriter, ScriptedModel]:
    model = ScriptedModel(scripts)
    return SummaryWriter(model, Failpoints(failpoint), call_s=call_s), model


def texts(request: ModelRequest) -> tuple[str, str]:
    system, user = ["".join(p.text for p in m.parts if isinstance(p, TextPart)) for m in request.messages]
    return system, user


def test_a_summary_request_has_instructions_and_the_record() -> None:
    system, user = texts(build_summary_request(CONVERSATION, history(CONVERSATION), context_tokens=200_000))

    assert system.startswith("You write the memory of an assistant.")
    assert "## Retrieval anchors" in system
    assert "[PREVIOUS MEMORY]" not in system
    assert user.startswith("[WORKING SUMMARIES]\nws:turn_0.conv.working.summary\nGoal: matter")
    assert "[RECORD]\nTURN" in user
    assert "USER MEANWHILE [ar:turn_3.external.followup.sig_4]: Please mind number 4." in user


def test_a_memory_that_is_there_already_is_to_be_brought_up_to_date() -> None:
    first = look(play_conversation(["turn", "call"]))
    timeline = TimelineBuilder()
    timeline.blocks = list(first.plus(draft_summary(first, build_summary(first, history(first)))).blocks)
    timeline.start_turn("turn_9", "More")
    later = look(timeline)

    system, user = texts(build_summary_request(later, history(later), context_tokens=200_000))

    assert "A memory of what came before already exists" in system
    assert user.partition("[PREVIOUS MEMORY]\n")[2].startswith("## Active request")


def test_the_request_says_that_the_turn_is_still_running() -> None:
    snapshot = look(play_conversation(["big", "big", "big"]))
    cut = choose_rounds(snapshot.blocks, snapshot.shown, snapshot.turn_id, Reach.ROUNDS, excess_tokens=1_000_000)
    assert cut is not None

    system, _ = texts(build_summary_request(snapshot, cut, context_tokens=200_000))

    assert "a turn that is still running" in system


def test_a_model_with_a_small_context_gets_a_shorter_record() -> None:
    snapshot = look(play_conversation([*["big"] * 20, "turn"]))

    request = build_summary_request(snapshot, history(snapshot), context_tokens=6_000)

    assert RATIO.tokens_for(sum(map(len, texts(request)))) + request.max_output_tokens <= 6_000


async def test_the_first_good_reply_is_taken() -> None:
    written, model = writer(GOOD)

    memory = await written.write(CONVERSATION, history(CONVERSATION))

    assert (memory.by, len(model.requests)) == ("model", 1)
    assert [usage.role for usage in written.usage] == ["summary"]


@pytest.mark.parametrize(
    "bad",
    [
        [Fail(ModelFailed("down"))],
        "",
        "No.",
        [Say(GOOD), Finish("refusal")],
        [Say(GOOD), CutOff()],
        [Pause(asyncio.Event())],
    ],
    ids=["fails", "says nothing", "says no", "refuses", "breaks off", "hangs"],
)
async def test_rules_write_the_summary_after_two_invalid_replies(bad: Script) -> None:
    written, model = writer(bad, bad, call_s=0.02)

    memory = await written.write(CONVERSATION, history(CONVERSATION))

    assert (memory.by, len(model.requests)) == ("rules", 2)
    assert memory == build_summary(CONVERSATION, history(CONVERSATION))


async def test_without_a_model_rules_write_it() -> None:
    written = SummaryWriter(None, Failpoints())

    assert await written.write(CONVERSATION, history(CONVERSATION)) == build_summary(
        CONVERSATION, history(CONVERSATION)
    )
    assert written.usage == ()


async def test_a_reply_without_end_is_read_up_to_a_limit() -> None:
    written, model = writer([Say(GOOD + "- and so on\n" * 10_000)])

    memory = await written.write(CONVERSATION, history(CONVERSATION))

    assert memory.by == "model"
    assert model.unfinished == 1
    assert written.usage[0].estimated


async def test_a_call_that_is_cancelled_is_paid_for_all_the_same() -> None:
    written, model = writer([Say("## Done"), Pause(asyncio.Event())])
    task = asyncio.create_task(written.write(CONVERSATION, history(CONVERSATION)))
    await until(lambda: model.unfinished == 1)

    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()
    (usage,) = written.usage
    assert usage.estimated and usage.input_tokens > 1_000


async def test_a_failure_without_output_costs_nothing() -> None:
    written, _ = writer([Fail(ModelFailed("down"))], [Fail(ModelFailed("down"))])

    await written.write(CONVERSATION, history(CONVERSATION))

    assert written.usage == ()


@pytest.mark.parametrize("end", [Fail(ModelFailed("cut")), Pause(asyncio.Event())], ids=["fails", "hangs"])
async def test_reasoning_is_paid_although_no_summary_follows(end: Fail | Pause) -> None:
    written, _ = writer([Think("x" * 400), end], "No.", call_s=0.02)

    await written.write(CONVERSATION, history(CONVERSATION))

    assert [(usage.output_tokens, usage.estimated) for usage in written.usage] == [(100, True), (20, False)]


async def test_the_failpoint_of_a_compaction_is_in_its_model_call() -> None:
    written, _ = writer(GOOD, failpoint="turn.in_compaction:1:raise")

    with pytest.raises(FailpointRaised):
        await written.write(CONVERSATION, history(CONVERSATION))


async def test_calls_that_fail_or_last_too_long_are_counted_as_failed() -> None:
    labels = {"model": SCRIPTED_TRAITS.name, "kind": "summary"}
    before = REGISTRY.get_sample_value("everturn_model_calls_failed_total", labels) or 0.0
    written, _ = writer([Fail(ModelFailed("down"))], [Pause(asyncio.Event())], call_s=0.02)

    await written.write(CONVERSATION, history(CONVERSATION))

    assert REGISTRY.get_sample_value("everturn_model_calls_failed_total", labels) == before + 2


async def test_each_call_is_a_span_without_texts() -> None:
    tracing = KeptTracing()
    model = ScriptedModel([[Fail(ModelFailed("down"))], [Say(GOOD), Finish(usage=ModelUsage(700, 30))]])
    written = SummaryWriter(model, Failpoints(), tracing=tracing, turn={"everturn.turn.id": "turn_1"})

    await written.write(CONVERSATION, history(CONVERSATION))

    failed, good = tracing.spans
    assert (failed.name, failed.kind, failed.failed) == (f"chat {model.traits.name}", "client", "ModelFailed")
    assert "gen_ai.usage.input_tokens" not in failed.attributes
    assert good.failed == ""
    assert good.attributes["everturn.model.role"] == "summary"
    assert good.attributes["everturn.turn.id"] == "turn_1"
    assert good.attributes["gen_ai.usage.input_tokens"] == 700
    assert good.attributes["gen_ai.usage.output_tokens"] == 30
    assert "half of it" not in str(good.attributes)


async def test_a_cancelled_call_is_a_failed_span_with_its_cost() -> None:
    tracing = KeptTracing()
    model = ScriptedModel([[Say("## Done"), Pause(asyncio.Event())]])
    written = SummaryWriter(model, Failpoints(), tracing=tracing)
    task = asyncio.create_task(written.write(CONVERSATION, history(CONVERSATION)))
    await until(lambda: model.unfinished == 1)

    task.cancel()
    await asyncio.wait({task})

    (span,) = tracing.spans
    assert span.failed == "CancelledError"
    assert span.attributes["everturn.usage.estimated"] is True
