"""Turns that grow too long for their model: summaries beside the turn, in its way, and in spite of everything."""

import asyncio
import threading
from collections.abc import Iterable

import pytest
from helpers.recorded_spans import KeptTracing
from prometheus_client import REGISTRY
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

from chat_proc.agent import compaction as compacting
from chat_proc.agent.kit import TurnLimits
from chat_proc.catalog.tool import ToolCall, ToolOutcome
from chat_proc.timeline.compaction import cut
from chat_proc.timeline.present import current_plan
from chat_proc.timeline.view import TimelineView
from everturn.core.tracing import NO_TRACING, Tracing
from everturn.events.model import ChatCompaction
from everturn.models.port import ContextLimitExceeded, ModelFailed, TextPart
from everturn.models.tokens import CharsPerToken, estimate_request
from everturn.timeline.blocks import Block, BlockType, CompletionBody, RangeSummaryBody
from everturn.timeline.turns import Outcome, SignalKind
from everturn.turns.model import Commit
from everturn_testing.models.scripted_model import Fail, Pause, Say, Script, ScriptedModel

SUMMARY = "## Active request\n- read it all\n## Done\n- read some\n## Critical facts\n- the code is 4711\n"


def look(n: int, chars: int = 5_000) -> str:
    """A round whose result has about `chars` characters."""
    return call("demo.echo", {"text": f"part {n} " + "x" * chars})


def is_compacting() -> bool:
    return any(task.get_name() == "compaction" for task in asyncio.all_tasks())


class SlowTool(DemoTool):
    """Returns when no compaction is running, so that its summary is ready at the next round."""

    async def run(self, call: ToolCall) -> ToolOutcome:
        await until(lambda: not is_compacting())
        return await super().run(call)


def count_errors() -> float:
    """Unexpected errors of compactions so far."""
    return REGISTRY.get_sample_value("everturn_loop_errors_total", {"loop": "compaction"}) or 0.0


def build(
    *scripts: Script,
    summaries: list[Script] | None = None,
    max_tokens: int = 10_000,
    limits: TurnLimits | None = None,
    tracing: Tracing = NO_TRACING,
    tool: DemoTool | None = None,
) -> Bench:
    model = None if summaries is None else ScriptedModel(summaries)
    return Bench(
        *scripts, tools=[tool or DemoTool()], summary_model=model, max_tokens=max_tokens, limits=limits, tracing=tracing
    )


async def compactions(bench: Bench) -> list[tuple[str, str]]:
    events = [event.data for event in await bench.published()]
    return [(event.status, event.reason) for event in events if isinstance(event, ChatCompaction)]


def summaries_of(bench: Bench) -> list[RangeSummaryBody]:
    return [block.body for block in bench.blocks if isinstance(block.body, RangeSummaryBody)]


def sizes(bench: Bench) -> list[int]:
    """Estimated tokens of every request for a decision."""
    return [estimate_request(request, CharsPerToken()) for request in bench.model.requests]


def text_of(bench: Bench, number: int) -> str:
    parts = (part for message in bench.model.requests[number].messages for part in message.parts)
    return "".join(part.text for part in parts if isinstance(part, TextPart))


async def run_turns(bench: Bench, *texts: str) -> None:
    for text in texts:
        await bench.say(text)
        await bench.work()


async def test_a_short_turn_is_left_alone() -> None:
    bench = build(look(1, 500), answer("Done."), summaries=[])

    await run_turns(bench, "Read it.")

    assert await compactions(bench) == []
    assert summaries_of(bench) == []


async def test_at_the_soft_threshold_a_summary_is_made_beside_the_turn() -> None:
    go_on = asyncio.Event()
    bench = build(
        *(look(n) for n in range(1, 6)),
        look(6, 100),
        answer("Done."),
        summaries=[[Pause(go_on), Say(SUMMARY)]],
        max_tokens=11_400,
    )
    await bench.say("Read it all.")
    task = asyncio.create_task(bench.work())
    summary_model = bench.summary_model
    assert summary_model is not None
    await until(lambda: summary_model.unfinished == 1 and len(bench.model.requests) == 6)
    assert summaries_of(bench) == []

    go_on.set()
    await task

    (summary,) = summaries_of(bench)
    assert (summary.by, summary.scope) == ("model", "turn")
    assert await compactions(bench) == [("started", "soft"), ("completed", "soft")]
    assert "the code is 4711" in text_of(bench, -1)
    assert bench.texts(CompletionBody) == ["Done."]
    await check_conversation(bench)


async def test_a_compaction_is_a_span_around_the_calls_of_its_summaries() -> None:
    tracing = KeptTracing()
    bench = build(
        *(look(n, 9_000) for n in range(1, 4)), answer("Done."), summaries=[SUMMARY, SUMMARY], tracing=tracing
    )

    await run_turns(bench, "Read it all.")

    at = next(at for at, span in enumerate(tracing.spans) if span.name == "compaction")
    first, second = tracing.spans[at : at + 2]
    assert (first.name, first.failed) == ("compaction", "")
    assert first.attributes["everturn.compaction.reason"] == "hard"
    assert first.attributes["gen_ai.conversation.id"] == bench.conversation_id
    before, after = (first.attributes[f"everturn.compaction.{when}_tokens"] for when in ("before", "after"))
    assert isinstance(before, int) and isinstance(after, int) and before > after > 0
    assert second.parent == first.own
    assert second.attributes["everturn.model.role"] == "summary"
    assert "4711" not in str(tracing.spans)


async def test_at_the_hard_threshold_the_round_waits_for_the_summary() -> None:
    bench = build(*(look(n, 9_000) for n in range(1, 4)), answer("Done."), summaries=[SUMMARY, SUMMARY])

    await run_turns(bench, "Read it all.")

    assert summaries_of(bench)[0].by == "model"
    assert (await compactions(bench))[:2] == [("started", "hard"), ("completed", "hard")]
    completed = [event.data for event in await bench.published() if isinstance(event.data, ChatCompaction)][1]
    assert (completed.original_messages or 0) > (completed.kept_messages or 0) > 0
    assert max(sizes(bench)) <= bench.context.hard
    assert "[MID-TURN CHECKPOINT]" in text_of(bench, -1)
    assert "Read it all." in text_of(bench, -1)
    await check_conversation(bench)


async def test_a_summary_that_is_not_ready_at_the_hard_threshold_is_waited_for() -> None:
    go_on = asyncio.Event()
    bench = build(
        look(1),
        look(2),
        look(3, 9_000),
        look(4),
        answer("Done."),
        summaries=[[Pause(go_on), Say(SUMMARY)]],
        max_tokens=9_800,
    )
    await bench.say("Read it all.")
    task = asyncio.create_task(bench.work())
    await until(
        lambda: len(bench.blocks) > 12 and bench.summary_model is not None and bench.summary_model.unfinished > 0
    )
    for _ in range(2_000):
        await asyncio.sleep(0)
    waiting = len(bench.model.requests)

    go_on.set()
    await task

    assert waiting < len(bench.model.requests)
    assert max(sizes(bench)) <= bench.context.hard
    assert (await compactions(bench))[0] == ("started", "soft")
    await check_conversation(bench)


@pytest.mark.parametrize(
    "bad",
    [
        [Fail(ModelFailed("down"))],
        "I can't do that.",
        [Say("## Done\n- half of it"), Fail(ModelFailed("cut", partial=True))],
    ],
    ids=["failure", "refusal", "broken off"],
)
async def test_a_summary_model_that_fails_twice_is_replaced_by_rules(bad: Script) -> None:
    bench = build(*(look(n, 9_000) for n in range(1, 4)), answer("Done."), summaries=[bad, bad])

    await run_turns(bench, "Read it all.")

    (summary,) = summaries_of(bench)
    assert summary.by == "rules"
    assert bench.summary_model is not None and len(bench.summary_model.requests) == 2
    assert max(sizes(bench)) <= bench.context.hard
    assert bench.exits[0].outcome is Outcome.COMPLETED
    await check_conversation(bench)


async def test_a_summary_model_that_fails_once_is_asked_again() -> None:
    bench = build(
        *(look(n, 9_000) for n in range(1, 4)), answer("Done."), summaries=[[Fail(ModelFailed("down"))], SUMMARY]
    )

    await run_turns(bench, "Read it all.")

    assert summaries_of(bench)[0].by == "model"


async def test_requests_of_a_long_conversation_fit_without_a_model() -> None:
    scripts = [script for n in range(12) for script in (look(n), look(n), answer(f"Done {n}."))]
    bench = build(*scripts)

    await run_turns(bench, *(f"Request {n}" for n in range(12)))

    assert max(sizes(bench)) <= bench.context.hard
    assert {summary.scope for summary in summaries_of(bench)} == {"history"}
    last = text_of(bench, -1)
    assert last.count("[COMPACTED PRIOR CONVERSATION MEMORY]") == 1
    for turn in bench.turn_rows[:-1]:
        assert turn.id in last
    await check_conversation(bench)


async def test_the_next_turn_loads_only_the_blocks_after_the_summary() -> None:
    scripts = [look(1), look(2), answer("One."), look(3), look(4), look(5, 9), answer("Two."), answer("Three.")]
    bench = build(*scripts, tool=SlowTool())
    await run_turns(bench, "Read it all.", "And now?")
    covered = max(summary.last_seq for summary in summaries_of(bench) if summary.scope == "history")
    before = text_of(bench, -1).partition("[ANNOUNCE]")[0]

    await run_turns(bench, "And then?")

    assert covered > 10
    assert "[COMPACTED PRIOR CONVERSATION MEMORY]" in before
    assert text_of(bench, -1).startswith(before)
    await check_conversation(bench)


async def test_what_the_summary_is_usage_recorded_with_its_role() -> None:
    bench = build(*(look(n, 9_000) for n in range(1, 4)), answer("Done."), summaries=[SUMMARY, SUMMARY])

    await run_turns(bench, "Read it all.")

    roles = [event.role for _, event in bench.platform.usage]
    assert roles.count("summary") == len(summaries_of(bench)) > 0
    assert not any(event.estimated for _, event in bench.platform.usage)


async def test_a_turn_that_ends_first_cancels_the_summary_and_books_it() -> None:
    go_on = asyncio.Event()
    bench = build(
        *(look(n) for n in range(1, 4)),
        [Pause(go_on), Say(answer("Done."))],
        summaries=[[Pause(asyncio.Event())]],
        max_tokens=8_500,
    )
    await bench.say("Read it all.")
    task = asyncio.create_task(bench.work())
    summary_model = bench.summary_model
    assert summary_model is not None
    await until(lambda: summary_model.unfinished == 1)

    go_on.set()
    await task

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert await compactions(bench) == [("started", "soft"), ("skipped", "turn_left")]
    assert summaries_of(bench) == []
    (cost,) = [event for _, event in bench.platform.usage if event.role == "summary"]
    assert cost.estimated and cost.input_tokens > 0
    await check_conversation(bench)


async def test_a_summary_that_is_ready_when_the_turn_ends_is_kept() -> None:
    paused = asyncio.Event()
    bench = build(
        *(look(n) for n in range(1, 4)), [Pause(paused), Say(answer("Done."))], summaries=[SUMMARY], max_tokens=8_500
    )
    await bench.say("Read it all.")
    task = asyncio.create_task(bench.work())
    await until(lambda: len(bench.model.requests) == 4 and not is_compacting())

    paused.set()
    await task

    assert (await compactions(bench))[-1][0] == "completed"
    assert len(summaries_of(bench)) == 1
    await check_conversation(bench)


async def test_a_ready_summary_is_kept_when_the_cancel_is_withdrawn() -> None:
    never = [Pause(asyncio.Event()), Say(answer("Never."))]
    bench = build(*(look(n) for n in range(1, 4)), never, answer("Done."), summaries=[SUMMARY], max_tokens=8_500)
    await bench.say("Read it all.")
    worker = bench.hire()
    task = asyncio.create_task(worker.work())
    await until(lambda: len(bench.model.requests) == 4 and not is_compacting())

    async def take_back(commit: Commit) -> None:
        if commit.close is not None:
            worker.timelines.before_commit = None
            await bench.retract(signal_id)

    worker.timelines.before_commit = take_back
    signal_id = await bench.signal(SignalKind.CANCEL)
    await asyncio.wait_for(task, 20)

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert (await compactions(bench))[-1][0] == "completed"
    assert len(summaries_of(bench)) == 1
    await check_conversation(bench)


async def test_who_cancels_the_turn_does_not_wait_for_a_summary() -> None:
    bench = build(*(look(n, 9_000) for n in range(1, 5)), summaries=[[Pause(asyncio.Event())]])
    await bench.say("Read it all.")
    task = asyncio.create_task(bench.work())
    await until(lambda: bench.summary_model is not None and bench.summary_model.unfinished == 1)

    await bench.signal(SignalKind.CANCEL)
    await asyncio.wait_for(task, 5)

    assert bench.exits[0].outcome is Outcome.CANCELLED
    assert [summary.by for summary in summaries_of(bench)] == ["rules"]
    await check_conversation(bench)


async def test_a_turn_that_has_reached_a_cap_asks_no_model_for_its_summary() -> None:
    limits = TurnLimits(tokens=300)
    bench = build(*(look(n, 9_000) for n in range(1, 4)), answer("So far."), summaries=[], limits=limits)

    await run_turns(bench, "Read it all.")

    assert bench.exits[0].outcome is Outcome.CAPPED
    assert [summary.by for summary in summaries_of(bench)] == ["rules"]
    assert max(sizes(bench)) <= bench.context.hard
    await check_conversation(bench)


async def test_a_request_rejected_as_too_long_is_shortened_and_resent() -> None:
    bench = build(look(1), look(2), [Fail(ContextLimitExceeded("too long"))], answer("Done."), max_tokens=80_000)

    await run_turns(bench, "Read it all.")

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert await compactions(bench) == [("started", "context_limit"), ("completed", "context_limit")]
    assert sizes(bench)[3] < sizes(bench)[2] * 0.7
    await check_conversation(bench)


async def test_a_closing_call_rejected_as_too_long_is_resent() -> None:
    scripts = (look(1), look(2), [Fail(ContextLimitExceeded("too long"))], answer("All I have."))
    bench = build(*scripts, summaries=[], max_tokens=80_000, limits=TurnLimits(rounds=2))

    await run_turns(bench, "Read it all.")

    assert bench.exits[0].outcome is Outcome.CAPPED
    assert summaries_of(bench)[0].by == "rules" and bench.summary_model and not bench.summary_model.requests
    assert bench.texts(CompletionBody) == ["All I have."]
    assert await compactions(bench) == [("started", "context_limit"), ("completed", "context_limit")]
    await check_conversation(bench)


async def test_a_request_that_is_still_too_long_ends_the_turn_with_the_reason() -> None:
    too_long = [Fail(ContextLimitExceeded("too long"))]
    bench = build(look(1), look(2), too_long, too_long, max_tokens=80_000)

    await run_turns(bench, "Read it all.")

    error = bench.exits[0].error
    assert error is not None and error.type.endswith("context-limit")
    await check_conversation(bench)


async def test_a_request_that_can_not_be_made_shorter_is_not_sent_again() -> None:
    bench = build([Fail(ContextLimitExceeded("too long"))], max_tokens=80_000)

    await run_turns(bench, "Hi")

    assert len(bench.model.requests) == 1
    assert (await compactions(bench))[-1][0] == "skipped"
    await check_conversation(bench)


async def test_two_unusable_replies_in_a_row_force_no_compaction() -> None:
    bench = build("nonsense", "nonsense", answer("Done."))

    await run_turns(bench, "Hi")

    assert await compactions(bench) == []


async def test_the_current_plan_survives_a_summary_of_its_turn() -> None:
    plan = call("react.plan", {"mode": "new", "steps": ["read", "write"]})
    scripts = [
        plan,
        look(1),
        look(2),
        answer("One."),
        look(3),
        look(4),
        look(5, 100),
        answer("Two.", notes="✓ [1]"),
        answer("Three."),
    ]
    bench = build(*scripts, tool=SlowTool())

    await run_turns(bench, "Plan it.", "Go on.", "And?")

    (row,) = [block for block in bench.blocks if block.type is BlockType.PLAN_HISTORY][:1]
    assert current_plan(bench.blocks[row.seq - 1 :]) == current_plan(bench.blocks)
    plan_now = current_plan(bench.blocks)
    assert plan_now is not None
    assert [step.status.value for step in plan_now.steps] == ["done", "pending"]
    await check_conversation(bench)


async def test_one_giant_prompt_fits() -> None:
    bench = build(answer("Done."), max_tokens=4_000)

    await run_turns(bench, "Count the words. " + "word " * 30_000)

    assert max(sizes(bench)) <= bench.context.hard
    assert "Count the words." in text_of(bench, 0)
    await check_conversation(bench)


async def test_one_giant_result_in_the_first_round_fits() -> None:
    bench = build(look(1, 60_000), answer("Done."), max_tokens=4_000)

    await run_turns(bench, "Read it.")

    assert max(sizes(bench)) <= bench.context.hard
    assert "Read it." in text_of(bench, -1)
    await check_conversation(bench)


async def test_a_compaction_is_repeated_after_a_worker_crash() -> None:
    endless = [Pause(asyncio.Event()), Say(SUMMARY)]
    bench = build(*(look(n, 9_000) for n in range(1, 4)), answer("Done."), summaries=[endless, SUMMARY, SUMMARY])
    await bench.say("Read it all.")
    worker, summary_model = bench.hire(), bench.summary_model
    assert summary_model is not None
    working = asyncio.create_task(worker.work())
    await until(lambda: summary_model.unfinished == 1)
    worker.gate.dead.set()
    await working
    bench.expire_lease()
    assert summaries_of(bench) == []

    await bench.work()

    assert len(summaries_of(bench)) >= 1
    assert bench.exits[0].outcome is Outcome.COMPLETED
    await check_conversation(bench)


async def test_a_failed_background_compaction_is_reported_as_skipped() -> None:
    go_on = asyncio.Event()
    last = [Pause(go_on), Say(answer("Done."))]
    bench = build(*(look(n) for n in range(1, 6)), last, summaries=[], max_tokens=11_400)
    await bench.say("Read it all.")

    task = asyncio.create_task(bench.hire(failpoint="turn.in_compaction:1:raise").work())
    await until(lambda: len(bench.model.requests) == 6 and not is_compacting())
    go_on.set()
    await task

    assert await compactions(bench) == [("started", "soft"), ("skipped", "nothing_to_save")]
    assert bench.texts(CompletionBody) == ["Done."]


async def test_a_compaction_that_breaks_in_the_turns_way_is_made_by_rules() -> None:
    bench = build(*(look(n, 9_000) for n in range(1, 4)), answer("Done."), summaries=[])
    await bench.say("Read it all.")
    before = count_errors()

    await bench.hire(failpoint="turn.in_compaction:1:raise").work()

    assert count_errors() == before + 1
    assert summaries_of(bench)[0].by == "rules"
    assert bench.texts(CompletionBody) == ["Done."]
    assert max(sizes(bench)) <= bench.context.hard
    await check_conversation(bench)


async def test_a_worker_may_die_at_any_step_of_a_turn_that_is_summarized() -> None:
    scenario = [look(1), look(2, 7_000), look(3, 7_000), answer("Done.")]
    steps = build(*scenario, summaries=[SUMMARY] * 4)
    await steps.say("Read it all.")
    worker = steps.hire()
    await worker.work()

    for step in range(3, worker.gate.steps + 1, 11):
        bench = build(*scenario, *scenario, summaries=[SUMMARY] * 8)
        await bench.say("Read it all.")
        await bench.hire(dies_at=step).work()
        bench.expire_lease()

        await bench.work()

        assert bench.exits[0].outcome is Outcome.COMPLETED, step
        assert max(sizes(bench)) <= bench.context.hard
        await check_conversation(bench, ends_may_repeat=True)


@pytest.mark.parametrize("summaries", [None, ["no summary", *[SUMMARY] * 20]])
async def test_compaction_works_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, summaries: list[Script] | None
) -> None:
    on_loop: list[str] = []
    folds = 0

    def note(name: str) -> None:
        if threading.current_thread() is threading.main_thread():
            on_loop.append(name)

    class NotedView(TimelineView):
        def extend(self, blocks: Iterable[Block]) -> None:
            nonlocal folds
            folds += 1
            note("fold")
            super().extend(blocks)

    def replace_with_noted(name: str) -> None:
        function = getattr(compacting, name)

        def call_and_note(*args: object, **options: object) -> object:
            note(name)
            return function(*args, **options)

        monkeypatch.setattr(compacting, name, call_and_note)

    monkeypatch.setattr(cut, "TimelineView", NotedView)
    for name in ("cover", "choose_cut", "find_step", "build_summary", "build_summary_request", "try_read_summary"):
        replace_with_noted(name)
    bench = build(*(look(n) for n in range(12)), answer("Done."), summaries=summaries)

    await run_turns(bench, "Read it all.")

    assert summaries_of(bench)
    assert folds > 10
    assert on_loop == []
