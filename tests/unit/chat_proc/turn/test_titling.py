import asyncio

import pytest
from helpers.recorded_spans import KeptTracing, RecordedSpan
from prometheus_client import REGISTRY
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

from chat_proc.models.structured import TOOL_NAME, StructuredLimits
from chat_proc.turn.titling import TitleCall, try_read_title
from everturn.core.tracing import NO_TRACING, Tracing
from everturn.events.model import ChatComplete, ConvTitle
from everturn.models.port import Ability, ModelFailed, ModelTraits, ModelUsage, PromptMessage, TextPart
from everturn.timeline.blocks import CompletionBody, TitleBody
from everturn.timeline.turns import Outcome, TurnStatus
from everturn.turns.model import Commit
from everturn_testing.models.scripted_model import Call, Fail, Finish, Pause, Say, Script, ScriptedModel

PROMPT = "please look at the attached numbers and tell me how sales went in March compared to the year before"
FALLBACK = "please look at the attached numbers and tell me how sales…"


class Titled:
    """A bench whose tool waits until the title model has said what it has to say."""

    def __init__(
        self, *titles: Script, tracing: Tracing = NO_TRACING, abilities: frozenset[Ability] = frozenset()
    ) -> None:
        self.titles = ScriptedModel(titles, traits=ModelTraits("small", 1000, False, False, abilities=abilities))
        self.echo = DemoTool()
        self.bench = Bench(
            call("demo.echo", {}),
            answer("Done."),
            answer("Again."),
            tools=[self.echo],
            title_model=self.titles,
            tracing=tracing,
        )

    async def run(self) -> Bench:
        bench = self.bench
        self.echo.go_on.clear()
        await bench.say(PROMPT)
        task = asyncio.create_task(bench.work())
        await self.echo.started.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        self.echo.go_on.set()
        await task
        await check_conversation(bench)
        return bench

    @property
    def title(self) -> str:
        return self.bench.platform.conversations[self.bench.conversation_id].title


def costs(bench: Bench) -> list[tuple[str, bool]]:
    return [(usage.model, usage.estimated) for _, usage in bench.platform.usage if usage.role == "title"]


async def test_a_new_conversation_gets_its_title_from_a_concurrent_call() -> None:
    titled = Titled([Say('"Sales in March"\n'), Finish("stop", ModelUsage(30, 5))])

    bench = await titled.run()

    assert titled.title == "Sales in March"
    assert [event.data.title for event in await bench.published() if isinstance(event.data, ConvTitle)] == [
        "Sales in March"
    ]
    assert costs(bench) == [("small", False)]
    assert bench.exits[0].usage.input_tokens == 230
    assert PROMPT in str(titled.titles.requests[0])


async def test_a_model_that_calls_tools_gives_the_title_as_a_call() -> None:
    titled = Titled([Call(TOOL_NAME, '{"title": "Sales in March"}')], abilities=frozenset({"tool_call"}))

    await titled.run()

    assert titled.title == "Sales in March"
    (request,) = titled.titles.requests
    assert request.tools[0].parameters["required"] == ["title"]


async def test_each_call_for_a_title_is_in_the_ledger() -> None:
    first = [Say('{"titel": "Sales"}'), Finish("stop", ModelUsage(30, 5, cost_usd=0.25))]
    second = [Say('{"title": "Sales in March"}'), Finish("stop", ModelUsage(40, 6, cost_usd=0.5))]
    titled = Titled(first, second)

    bench = await titled.run()

    assert titled.title == "Sales in March"
    entries = [usage for _, usage in bench.platform.usage if usage.role == "title"]
    assert [(usage.input_tokens, usage.cost_usd) for usage in entries] == [(30, 0.25), (40, 0.5)]
    assert bench.exits[0].usage.input_tokens == 270
    assert bench.exits[0].usage.cost_usd == 0.75


def gates(bench: Bench) -> list[str]:
    return [block.body.title for block in bench.blocks if isinstance(block.body, TitleBody)]


async def test_the_title_is_announced_and_saved_while_the_turn_still_runs() -> None:
    titled = Titled("Sales in March")
    bench = titled.bench
    titled.echo.go_on.clear()
    await bench.say(PROMPT)
    task = asyncio.create_task(bench.work())
    await titled.echo.started.wait()
    for _ in range(50):
        await asyncio.sleep(0)

    early = titled.title
    titled.echo.go_on.set()
    await task

    types = [type(event.data) for event in await bench.published()]
    assert early == "Sales in March"
    assert types.index(ConvTitle) < types.index(ChatComplete)
    assert types.count(ConvTitle) == 1
    assert gates(bench) == ["Sales in March"]
    await check_conversation(bench)


@pytest.mark.parametrize("title", ["Sales in March", '{"title": "Sales in March"}', "{}"])
async def test_the_block_of_the_gate_has_the_announced_title(title: str) -> None:
    titled = Titled(title, title)

    bench = await titled.run()

    announced = [event.data.title for event in await bench.published() if isinstance(event.data, ConvTitle)]
    assert gates(bench) == announced == [titled.title]


async def test_a_title_that_is_saved_just_before_the_end_is_announced_last() -> None:
    bench = Bench(answer("Done."))
    worker = bench.hire()

    async def rename(commit: Commit) -> None:
        if commit.close is not None:
            bench.platform.conversations[bench.conversation_id].title = "A person's title"

    worker.timelines.before_commit = rename
    await bench.say(PROMPT)
    await worker.work()

    announced = [event.data.title for event in await bench.published() if isinstance(event.data, ConvTitle)]
    assert announced == ["A person's title"]


async def test_a_late_title_delays_nothing_and_its_cost_is_estimated() -> None:
    titled = Titled([Say("Sales"), Pause(asyncio.Event())])

    bench = await titled.run()

    assert titled.title == FALLBACK
    assert bench.texts(CompletionBody) == ["Done."]
    assert titled.titles.unfinished == 1
    assert costs(bench) == [("small", True)]


async def test_a_turn_that_waits_for_a_person_has_its_title_first() -> None:
    # The model for titles is slower than the round that asks the person.
    titles = ScriptedModel([[Pause(0.2), Say("Sales in March")]], traits=ModelTraits("small", 1000, False, False))
    send = DemoTool("demo.send", requires_approval=True)
    bench = Bench(call("demo.send", {"text": "x"}), answer("Done."), tools=[send], title_model=titles)
    await bench.say(PROMPT)

    await bench.work()

    assert bench.turn_rows[0].status is TurnStatus.WAITING
    assert bench.platform.conversations[bench.conversation_id].title == "Sales in March"
    assert "Sales in March" in [
        event.data.title for event in await bench.published() if isinstance(event.data, ConvTitle)
    ]


@pytest.mark.parametrize(
    "script",
    [
        [Fail(ModelFailed("down"))],
        [Say("Sal"), Fail(ModelFailed("cut"))],
        "",
        "<channel:action>{}</channel:action>",
        "x" * 1_000,
        '{"title": 5}',
        '{"title": "<b>Sales</b>"}',
    ],
)
async def test_a_title_call_that_fails_leaves_the_beginning_of_the_prompt(script: Script) -> None:
    titled = Titled(script, script)

    bench = await titled.run()

    assert titled.title == FALLBACK
    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert len(titled.titles.requests) == (1 if any(isinstance(step, Fail) for step in script) else 2)


def count_failed() -> float:
    labels = {"model": "small", "kind": "title"}
    return REGISTRY.get_sample_value("everturn_model_calls_failed_total", labels) or 0.0


async def trace_call(script: Script) -> RecordedSpan:
    """The span of the call for a title."""
    tracing = KeptTracing()
    await Titled(script, tracing=tracing).run()
    (span,) = [span for span in tracing.spans if span.attributes.get("everturn.model.role") == "title"]
    return span


async def test_a_title_call_is_a_span_without_texts() -> None:
    failed = count_failed()

    span = await trace_call([Say("Sales in March"), Finish("stop", ModelUsage(30, 5))])

    assert (span.name, span.kind, span.failed) == ("chat small", "client", "")
    assert span.attributes["gen_ai.usage.input_tokens"] == 30
    assert {"gen_ai.conversation.id", "everturn.turn.id"} < set(span.attributes)
    assert "Sales" not in str(span)
    assert "sales" not in str(span)
    assert count_failed() == failed


@pytest.mark.parametrize(
    ("script", "why", "is_counted"),
    [
        ([Fail(ModelFailed("down"))], "ModelFailed", True),
        ([Say("Sales"), Pause(asyncio.Event())], "CancelledError", False),
    ],
    ids=["it fails", "the turn ends before it"],
)
async def test_only_a_failed_title_call_is_counted(script: Script, why: str, is_counted: bool) -> None:
    failed = count_failed()

    span = await trace_call(script)

    assert span.failed == why
    assert ("gen_ai.usage.input_tokens" in span.attributes) is not is_counted
    assert count_failed() == failed + is_counted


async def test_a_title_call_that_breaks_does_not_break_the_turn() -> None:
    titled = Titled([Fail(RuntimeError("a bug"))])

    bench = await titled.run()

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert titled.title == FALLBACK


async def test_a_title_is_waited_for_at_most_its_time() -> None:
    messages = (PromptMessage("user", (TextPart("x" * 35_000),)),)
    model = ScriptedModel([[Say("Sal"), Pause(asyncio.Event())]])
    slow = TitleCall(model, messages, limits=StructuredLimits(limit_s=0.01))

    await asyncio.wait_for(slow.run(), 5)

    (usage,) = slow.build_usage()
    assert slow.try_title() is None
    assert usage.estimated
    assert 10_000 < usage.input_tokens < 10_200


async def test_a_title_that_a_person_gave_is_never_overwritten() -> None:
    titled = Titled("Sales in March")
    bench = titled.bench
    titled.echo.go_on.clear()
    await bench.say(PROMPT)
    bench.platform.conversations[bench.conversation_id].title = "Mine"
    task = asyncio.create_task(bench.work())
    await titled.echo.started.wait()

    titled.echo.go_on.set()
    await task

    assert titled.title == "Mine"
    assert not any(isinstance(event.data, ConvTitle) for event in await bench.published())


async def test_only_the_first_turn_of_a_conversation_asks_for_a_title() -> None:
    titled = Titled("Sales in March")
    bench = await titled.run()

    await bench.say("And in April?")
    await bench.work()

    assert len(titled.titles.requests) == 1
    assert titled.title == "Sales in March"


async def test_without_a_model_for_titles_none_is_asked_for() -> None:
    bench = Bench(answer("Done."))
    await bench.say(PROMPT)

    await bench.work()

    assert bench.platform.conversations[bench.conversation_id].title == FALLBACK
    assert costs(bench) == []


@pytest.mark.parametrize(
    ("reply", "title"),
    [
        ("Sales in March", "Sales in March"),
        ("\n## **Sales in March.**\nMore.", "Sales in March"),
        ("„Verkäufe im März“", "Verkäufe im März"),
        ("", None),
        (" \n#\n", None),
        ("<channel:thinking>x", None),
        ('{"title": "x"}', None),
        ("word " * 60, None),
    ],
)
def test_a_title_is_one_plain_line(reply: str, title: str | None) -> None:
    assert try_read_title(reply) == title
