"""What a workflow shows: replies of models in channels, values, texts of its own. Each is shown once."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs
from turn_harness.authored import LocalWorkflow
from turn_harness.channels_example import ANSWER, CALL, FOLLOWUPS, REPLY, SHOWN, THOUGHT, USAGE, system_msg, user_msg
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.plans import read
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

from chat_proc.agent.kit import TurnLimits
from everturn.events.model import ChatDelta
from everturn.models.port import ModelFailed, ModelPiece, ModelRequest
from everturn.timeline.blocks import ChannelsBody, CompletionBody
from everturn.timeline.turns import Outcome, SignalKind
from everturn_sdk import (
    BaseWorkflow,
    ChannelSpec,
    ChannelSubscribers,
    Payload,
    ToolUse,
    WorkflowError,
    stream_with_channels,
)
from everturn_testing.models.scripted_model import Fail, Say, ScriptedModel


class Reports(BaseWorkflow):
    """The example of the documents, with the names that it assumes."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[str] = []
        self.emitted: list[dict[str, Any]] = []

    async def run(self, payload: Payload) -> Any:
        svc = self.models
        recorded, emitted = self.recorded, self.emitted

        async def _emit_wrapper(**delta: Any) -> None:
            emitted.append(delta)

        def _record_usage_sids(*, text: str, **_delta: Any) -> None:
            recorded.append(text)

        subscribers = ChannelSubscribers().subscribe("usage", _record_usage_sids)
        results, meta = await stream_with_channels(svc=svc, emit=_emit_wrapper, subscribers=subscribers, **CALL)
        answer_text = results["answer"].raw
        used_sids = results["answer"].used_sources
        service_err = (meta or {}).get("service_error")
        assert (used_sids, service_err, meta["raw"]) == ([1], None, REPLY)
        return answer_text


def build(kind: type[BaseWorkflow], *scripts: Any, **more: Any) -> Bench:
    return Bench(*scripts, authored=LocalWorkflow(kind()), tools=[DemoTool()], **more)


async def play(kind: type[BaseWorkflow], *scripts: Any, **more: Any) -> Bench:
    bench = build(kind, *scripts, **more)
    await bench.say("Hi")
    await bench.work()
    await check_conversation(bench)
    return bench


def replies(bench: Bench) -> list[ChannelsBody]:
    return [block.body for block in bench.blocks if isinstance(block.body, ChannelsBody)]


@pytest.mark.parametrize("chunk_chars", [1, 7, 1000])
async def test_the_example_of_the_documents_streams_to_clients_and_to_the_workflow(chunk_chars: int):
    workflow = Reports()
    bench = Bench(authored=LocalWorkflow(workflow), tools=[DemoTool()])
    bench.model = ScriptedModel([REPLY], chunk_chars=chunk_chars)
    await bench.say("Hi")
    await bench.work()
    await check_conversation(bench)

    view = bench.state().turns[0]
    assert (view.outcome, view.answer) == ("completed", SHOWN)
    assert view.followups == FOLLOWUPS
    assert [text.text for text in view.texts if text.channel == "answer"] == [SHOWN]
    assert [text.text for text in view.texts if text.channel == "thinking"] == [THOUGHT]
    assert json.loads("".join(workflow.recorded)) == USAGE
    assert "".join(each["text"] for each in workflow.emitted if each["channel"] == "answer") == SHOWN
    sent = [event.data for event in await bench.published() if isinstance(event.data, ChatDelta)]
    assert "".join(each.text for each in sent if each.channel == "answer").count("Based on the report") == 1
    assert bench.texts(CompletionBody) == [ANSWER]


class Desk(Reports):
    """A reply, a value and texts around an answer of the agent."""

    async def run(self, payload: Payload) -> Any:
        drafted, _ = await self.models.stream_with_channels(
            messages=[user_msg], channels=[ChannelSpec("report", emit_marker="canvas")], artifact_name="report"
        )
        await self.emit(f"Draft: {drafted['report'].raw}", marker="timeline_text")
        result = await (await self.build_react()).run(payload)
        value = await self.models.structured_call(
            [user_msg], {"type": "object", "properties": {"n": {"type": "integer"}}}
        )
        await self.emit(str(value["n"]), marker="timeline_text", key="value")
        return result


class ByRequest(ScriptedModel):
    """Replies by the request, so that a repeated call gets the same reply."""

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        if "What does the report say?" not in read(request):
            script = answer("Hello!")
        elif len(request.messages) == 1 and not request.force_tool:
            script = "<channel:report>All is well.</channel:report>"
        else:
            script = '{"n": 3}'
        self._scripts[len(self.requests) :] = [script]
        async for piece in super().generate(request):
            yield piece


async def test_a_worker_that_dies_anywhere_shows_nothing_twice():
    steps = 0
    while True:
        steps += 1
        bench = Bench(tools=[DemoTool()], authored=LocalWorkflow(Desk()))
        bench.model = ByRequest()
        await bench.say("Hi")
        worker = bench.hire(dies_at=steps)
        await worker.work()
        died = worker.gate.dead.is_set()
        if died:
            bench.expire_lease()
            await bench.work()
        await check_conversation(bench, ends_may_repeat=True)
        view = bench.state().turns[0]
        assert (view.outcome, view.answer) == ("completed", "Hello!"), steps
        assert [(text.marker, text.text) for text in view.texts if text.channel != "thinking"] == [
            ("timeline_text", "Draft: All is well."),
            ("canvas", "All is well."),
            ("timeline_text", "3"),
            ("answer", "Hello!"),
        ], steps
        if not died:
            break
    assert steps > 15


class Fields(Reports):
    """The example of the documents for JSON that is shown field by field."""

    async def run(self, payload: Payload) -> Any:
        svc, emitted = self.models, self.emitted

        async def emit_delta(**delta: Any) -> None:
            emitted.append(delta)

        # Answer channel carries JSON; composite streamer fans it out to canvas
        channels = [
            ChannelSpec(name="answer", format="json", replace_citations=False, emit_marker="answer"),
            ChannelSpec(name="usage", format="json", replace_citations=False, emit_marker="answer"),
        ]
        results = await stream_with_channels(
            svc=svc,
            messages=[system_msg, user_msg],
            role="answer.generator.regular",
            channels=channels,
            emit=emit_delta,
            agent="my.agent",
            artifact_name="my.json.artifact",
            composite_cfg={"artifactA": "path.to.schema"},
            composite_channel="answer",  # route JSON channel into composite streamer
            composite_marker="canvas",  # emit per-attribute deltas to canvas
        )
        return f"Title: {results[0]['answer'].obj['artifactA']}"  # pyright: ignore[reportIndexIssue]


async def test_json_is_shown_field_by_field():
    workflow = Fields()
    bench = Bench(authored=LocalWorkflow(workflow), tools=[DemoTool()])
    bench.model = ScriptedModel(['<channel:answer>{"artifactA": "# One", "other": 1}</channel:answer>'], chunk_chars=3)
    await bench.say("Hi")
    await bench.work()
    await check_conversation(bench)

    view = bench.state().turns[0]
    assert view.answer == "Title: # One"
    assert [(text.channel, text.marker, text.format, text.artifact, text.text) for text in view.texts] == [
        ("answer.artifactA", "canvas", "markdown", "artifactA", "# One"),
        ("answer", "answer", "json", "my.json.artifact", '{"artifactA": "# One", "other": 1}'),
        ("answer", "answer", "markdown", None, "Title: # One"),
    ]
    assert "".join(each["text"] for each in workflow.emitted if each["marker"] == "canvas") == "# One"


class Followups(BaseModel):
    followups: list[str]


class Asks(BaseWorkflow):
    """What is not possible, and what a failing model leaves."""

    async def run(self, payload: Payload) -> Any:
        said: list[str] = []

        async def attempt(**more: Any) -> None:
            arguments = {"messages": [user_msg], "channels": [ChannelSpec("answer")], **more}
            try:
                results, meta = await self.models.stream_with_channels(**arguments)
            except WorkflowError as error:
                said.append(str(error))
            else:
                result = next(iter(results.values()))
                said.append(f"{result.obj or result.raw} {result.error} {(meta['service_error'] or {}).get('kind')}")

        async def step(**_delta: Any) -> None:
            await self.step("inner", str)

        await attempt(channels=[ChannelSpec("a", "json", model=Followups)], emit=step)
        await attempt(channels=[ChannelSpec("a", "json", model=Followups)])
        await attempt()
        await attempt(channels=[ChannelSpec("score", emit_marker="score")])
        await attempt(channels=[ChannelSpec("b"), ChannelSpec("b")], key="x")
        await attempt(key="x")
        await attempt(messages=[{"role": "tool", "content": ""}])
        listed = {"type": "object", "$defs": ["a"], "properties": {"x": {"$ref": "#/$defs/a"}}}
        for schema in ({"type": "array"}, {"type": "object", "$ref": "http://e.example"}, listed):
            try:
                await self.models.structured_call([user_msg], schema)
            except WorkflowError as error:
                said.append(str(error))
        try:
            await self.emit("x", marker="panel")
        except WorkflowError as error:
            said.append(str(error))
        return "\n".join(said)


async def test_what_is_not_possible_is_refused_and_a_failure_is_reported():
    good, bad = '{"followups": ["a"]}', '{"followups": 1}'
    failing = [Say("<channel:answer>half"), Fail(ModelFailed("overloaded", retryable=True))]
    bench = await play(Asks, f"<channel:a>{good}</channel:a>", f"<channel:a>{bad}</channel:a>", failing)

    (text,) = bench.texts(CompletionBody)
    assert text.splitlines() == [
        "followups=['a'] None None",
        '{"followups": 1} invalid: followups: Input should be a valid list None',
        "half None ModelFailed",
        "The marker 'score' is not known. Add it to `markers` in bundle.toml, or use one of answer, canvas, thinking, "
        "timeline_text.",
        "channel name 'b' is malformed or declared twice.",
        "Two calls of self.models.stream_with_channels have the key 'x'. Give each call of a turn a key of its own.",
        "role 'tool'",
        "structured_call: the schema must be that of an object.",
        "structured_call: the schema refers to 'http://e.example', outside of itself.",
        "structured_call: the schema refers to '#/$defs/a', which it does not have.",
        "The marker 'panel' is not known. Add it to `markers` in bundle.toml, or use one of answer, canvas, thinking, "
        "timeline_text.",
    ]
    assert len(bench.model.requests) == 3
    assert [event.role for _, event in bench.platform.usage].count("workflow") == 3


class Value(BaseModel):
    n: int


class Values(BaseWorkflow):
    async def run(self, payload: Payload) -> Any:
        value = await self.models.structured_call([user_msg], Value)
        return f"{type(value).__name__} {value.n}"


async def test_a_value_is_an_instance_of_its_model_and_counts_for_the_limits():
    assert (await play(Values, '{"n": 3}')).texts(CompletionBody) == ["Value 3"]

    bench = await play(Values, limits=TurnLimits(tokens=0))
    assert bench.exits[0].error is not None
    assert bench.model.requests == []


async def test_a_stop_during_a_reply_ends_the_turn_without_its_texts():
    bench = build(Reports)
    bench.model = ScriptedModel([REPLY], chunk_chars=1, chunk_pause_s=0.05)
    await bench.say("Hi")
    working = asyncio.create_task(bench.work())
    await until(lambda: len(bench.model.requests) == 1)
    await bench.signal(SignalKind.CANCEL)
    await working

    await check_conversation(bench)
    assert bench.exits[0].outcome is Outcome.CANCELLED
    assert bench.state().turns[0].texts == ()
    assert [event.role for _, event in bench.platform.usage] == ["workflow"]


class Stores(BaseWorkflow):
    async def run(self, payload: Payload) -> Any:
        file = await self.store.put_attachment("report.csv", "a,b\n1,2\n", description="The numbers")
        result = await (await self.build_react()).run(payload)
        await self.store.put_attachment("files/note.md", b"# Note", visibility="internal", key="note")
        assert await self.store.get_artifact(file.ref) == b"a,b\n1,2\n"
        (turn,) = await self.store.get_turns()
        return f"{file.filename} {file.mime} {turn['text']} {result.text} {len(await self.store.list_artifacts())}"


async def test_a_file_of_a_workflow_is_stored_once_wherever_a_worker_dies():
    steps = 0
    while True:
        steps += 1
        bench = Bench(*[answer("Hello!")] * 3, tools=[DemoTool()], authored=LocalWorkflow(Stores()))
        await bench.say("Hi")
        worker = bench.hire(dies_at=steps)
        await worker.work()
        if died := worker.gate.dead.is_set():
            bench.expire_lease()
            await bench.work()
        await check_conversation(bench, ends_may_repeat=True)
        view = bench.state().turns[0]
        assert [(file.filename, file.mime, file.verdict) for file in view.files] == [
            ("report.csv", "text/csv", "not scanned")
        ], steps
        stored = bench.platform.conversations[bench.conversation_id].artifacts
        assert [file.path.split("/", 1)[1] for file in stored] == ["outputs/report.csv", "files/note.md"], steps
        assert view.answer == "report.csv text/csv Hi Hello! 1", steps
        if not died:
            break
    assert steps > 5


class StoresTooMuch(BaseWorkflow):
    async def run(self, payload: Payload) -> Any:
        said: list[str] = []
        for path, data in (("../x", b""), ("attachments/x", b""), ("a", b""), ("a/b", b"")):
            try:
                await self.store.put_attachment(path, data)
            except WorkflowError as error:
                said.append(str(error))
        try:
            await self.store.get_artifact("fi:other/x")
        except WorkflowError as error:
            said.append(str(error))
        kinds = [block["type"] for block in await self.store.get_timeline()]
        return "\n".join([*said, ", ".join(kinds)])


async def test_a_file_without_room_or_name_is_refused():
    lines = (await play(StoresTooMuch)).texts(CompletionBody)[0].splitlines()

    assert "can't be written" in lines[1] and "would be both a file and a folder" in lines[2]
    assert lines[3:] == ["The conversation has no file 'fi:other/x'.", "turn.header, user.prompt, workflow.step"]


class Watches(BaseWorkflow):
    """Observes the agent; `hang` and `fail` are hooks that do."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    async def before_round(self, number: int) -> None:
        self.seen.append(f"round {number}")
        await asyncio.Event().wait()

    def after_tool(self, use: ToolUse) -> None:
        self.seen.append(f"{use.tool_id} {use.status} {use.text} {use.round}")
        raise ValueError("It is broken.")

    async def run(self, payload: Payload) -> Any:
        return await (await self.build_react()).run(payload)


async def test_hooks_observe_the_agent_and_cost_only_themselves(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("everturn_sdk.workflows.HOOK_S", 0.05)
    monkeypatch.setattr("chat_proc.agent.authored.hooks.HOOK_S", 0.05)
    workflow = Watches()
    bench = Bench(
        call("demo.echo", {"text": "x"}),
        call("demo.echo", {"text": "y"}),
        answer("Hello!"),
        authored=LocalWorkflow(workflow),
        tools=[DemoTool()],
    )
    await bench.say("Hi")
    with capture_logs() as logs:
        await bench.work()
    await check_conversation(bench)

    assert bench.state().turns[0].answer == "Hello!"
    assert workflow.seen == ["round 1", "demo.echo ok echo: x 1", "demo.echo ok echo: y 2"]
    assert [(log["hook"], log["why"]) for log in logs if log["event"] == "A hook of a workflow failed"] == [
        ("before_round", "TimeoutError:  It took more than 0.05 s, so it is not called again in this turn."),
        ("after_tool", "ValueError: It is broken."),
        ("after_tool", "ValueError: It is broken."),
    ]
