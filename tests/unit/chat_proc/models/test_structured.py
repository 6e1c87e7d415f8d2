"""Structured calls: which requests they send to a model, when they stop, and what they return."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
from helpers.recorded_spans import KeptTracing

from chat_proc.models.calls import CallTracker
from chat_proc.models.structured import (
    MAX_READ_ON_LOOP_CHARS,
    TOOL_NAME,
    StructuredCallFailed,
    StructuredLimits,
    StructuredResult,
    structured_call,
)
from everturn.models.port import (
    Ability,
    ContextLimitExceeded,
    JsonReply,
    ModelFailed,
    ModelPiece,
    ModelRequest,
    ModelTraits,
    ModelUsage,
    Price,
    PromptMessage,
    ReplyFinished,
    TextPart,
)
from everturn_testing.models.scripted_model import Call, Cut, Fail, Finish, Pause, Say, Script, ScriptedModel, Think

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}, "required": ["n"]}
MESSAGES = (PromptMessage("system", (TextPart("Count."),)), PromptMessage("user", (TextPart("How many?"),)))
ALL: tuple[Ability, ...] = ("tool_call", "json_mode", "json_schema")
USED = ModelUsage(10, 5, cost_usd=0.25)
GOOD = '{"n": 7}'
INSTRUCTION = (
    "Reply with one JSON object and nothing else: no text around it, no code fence. It must match this JSON schema:\n\n"
    '{"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}, "required": ["n"]}'
)


def build_model(*scripts: Script, abilities: tuple[Ability, ...] = ALL) -> ScriptedModel:
    traits = ModelTraits(
        "small",
        10_000,
        False,
        False,
        provider="acme",
        abilities=frozenset(abilities),
        price=Price(input=1.0, output=2.0),
    )
    return ScriptedModel(scripts, traits=traits)


def read_n(raw: Mapping[str, Any]) -> int:
    return raw["n"]


async def ask(model: ScriptedModel, **more: Any) -> StructuredResult[int]:
    tracker = CallTracker(model.traits, "summary")
    return await structured_call(model, MESSAGES, SCHEMA, **{"parse_fn": read_n, "tracker": tracker, **more})


def describe(request: ModelRequest) -> str:
    if request.force_tool:
        return "native"
    if request.reply_form is not None:
        return "json" if request.reply_form.schema is None else "schema"
    return "plain"


def texts(request: ModelRequest) -> list[tuple[str, list[str]]]:
    return [(each.role, [part.text for part in each.parts if isinstance(part, TextPart)]) for each in request.messages]


async def test_a_model_that_calls_tools_is_forced_to_call_one() -> None:
    model = build_model([Think("7"), Call(TOOL_NAME, GOOD), Call("other", "{}"), Finish("stop", USED)])

    result = await ask(model)

    assert result == StructuredResult(7, {"n": 7}, "native", USED, 1)
    (request,) = model.requests
    assert request.messages == MESSAGES
    assert [(tool.name, tool.parameters) for tool in request.tools] == [(TOOL_NAME, SCHEMA)]
    assert (request.force_tool, request.reply_form) == (TOOL_NAME, None)


@pytest.mark.parametrize("text", [f"Here: {GOOD}", f'<think>Perhaps {{"n": 1}}.</think>{GOOD}'])
async def test_a_text_in_place_of_the_forced_call_is_read(text: str) -> None:
    result = await ask(build_model(text))

    assert (result.value, result.level, result.calls) == (7, "native", 1)


@pytest.mark.parametrize(
    ("abilities", "form"), [(("json_mode",), JsonReply()), (("json_mode", "json_schema"), JsonReply(SCHEMA))]
)
async def test_json_mode_uses_the_schema_if_the_model_can(abilities: tuple[Ability, ...], form: JsonReply) -> None:
    model = build_model(GOOD, abilities=abilities)

    result = await ask(model)

    assert (result.value, result.level, result.calls) == (7, "json", 1)
    (request,) = model.requests
    assert (request.reply_form, request.tools) == (form, ())
    assert texts(request) == [("system", ["Count.", INSTRUCTION]), ("user", ["How many?"])]


async def test_a_plain_reply_is_searched_for_an_object_that_matches() -> None:
    model = build_model('Not {"n": "x"} but\n```json\n{"n": 7}\n```\n', abilities=())

    result = await ask(model)

    assert (result.value, result.raw, result.level, result.calls) == (7, {"n": 7}, "plain", 1)
    assert describe(model.requests[0]) == "plain"


class NotesThreads(dict[str, object]):
    """A part of a schema that records which threads compare a value with it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.threads: set[threading.Thread] = set()

    def items(self) -> Any:
        self.threads.add(threading.current_thread())
        return super().items()


async def test_a_long_reply_is_not_compared_on_the_event_loop() -> None:
    properties = NotesThreads({"n": {"type": "integer"}})
    model = build_model(json.dumps({"n": 7, "more": "x" * MAX_READ_ON_LOOP_CHARS}))
    tracker = CallTracker(model.traits, "summary")

    result = await structured_call(model, MESSAGES, {"properties": properties}, parse_fn=read_n, tracker=tracker)

    assert result.value == 7
    assert properties.threads and threading.current_thread() not in properties.threads


async def test_messages_without_a_system_text_get_one() -> None:
    model = build_model(GOOD, abilities=())

    await structured_call(model, MESSAGES[1:], SCHEMA, parse_fn=read_n, tracker=CallTracker(model.traits, "summary"))

    assert texts(model.requests[0]) == [("system", [INSTRUCTION]), ("user", ["How many?"])]


@pytest.mark.parametrize(
    ("abilities", "sent"),
    [
        (ALL, ["native", "schema", "schema", "plain", "plain"]),
        (("tool_call", "json_mode"), ["native", "json", "json", "plain", "plain"]),
        (("json_mode",), ["json", "json", "plain", "plain"]),
        (("tool_call",), ["native", "plain", "plain"]),
        ((), ["plain", "plain"]),
    ],
)
async def test_a_model_that_gives_no_object_is_asked_at_most_5_4_or_2_times(
    abilities: tuple[Ability, ...], sent: list[str]
) -> None:
    model = build_model(*["I can't."] * 5, abilities=abilities)

    with pytest.raises(StructuredCallFailed, match=rf"no usable reply \(model calls: {len(sent)}\)"):
        await ask(model)

    assert [describe(request) for request in model.requests] == sent


async def test_a_closing_think_tag_in_a_string_ends_no_thinking() -> None:
    reply = json.dumps({"n": 4, "why": "Cut everything up to </think> from the log."})
    model = build_model(reply, abilities=())

    result = await structured_call(
        model, MESSAGES, {"type": "object"}, parse_fn=dict, tracker=CallTracker(model.traits, "summary")
    )

    assert result.raw == json.loads(reply)


async def test_only_a_second_request_of_a_form_shows_a_reply_without_an_object() -> None:
    model = build_model("one", "two", "", "", GOOD)

    result = await ask(model)

    assert (result.level, result.calls) == ("plain", 5)
    again = "\n\nReply again, with one JSON object that matches the schema and nothing else."
    reason = f"Your previous reply could not be used: it contains no JSON object{again}"
    shown = [texts(request)[2:] for request in model.requests]
    assert shown == [
        [],
        [],
        [("assistant", ["two"]), ("user", [reason])],
        [],
        [("assistant", ["(empty)"]), ("user", [reason])],
    ]


async def test_an_object_that_violates_the_schema_is_corrected_in_the_next_form() -> None:
    model = build_model([Call(TOOL_NAME, '{"n": -1}')], GOOD)

    result = await ask(model)

    assert (result.value, result.level, result.calls) == (7, "json", 2)
    assistant, user = texts(model.requests[1])[2:]
    assert assistant == ("assistant", ['{"n": -1}'])
    assert "$.n: -1 is less than the minimum of 0" in user[1][0]


async def test_the_reason_of_the_parser_is_shown_to_the_model() -> None:
    def reject_odd(raw: Mapping[str, Any]) -> int:
        if raw["n"] % 2:
            raise ValueError(f"{raw['n']} is odd")
        return raw["n"]

    model = build_model('{"n": 1}', '{"n": 3} {"n": 4}', abilities=())

    result = await ask(model, parse_fn=reject_odd)

    assert (result.value, result.raw, result.calls) == (4, {"n": 4}, 2)
    assert "could not be used: 1 is odd" in texts(model.requests[1])[-1][1][0]


@pytest.mark.parametrize(("fields", "value", "calls"), [({"n": 7}, 7, 1), ({"n": "x"}, 8, 2), (None, 8, 2)])
async def test_a_plain_reply_without_an_object_is_given_to_the_fallback(
    fields: dict[str, Any] | None, value: int, calls: int
) -> None:
    asked: list[str] = []

    def find_fields(text: str) -> dict[str, Any] | None:
        asked.append(text)
        return fields

    result = await ask(build_model("seven", '{"n": 8}', abilities=()), regex_fallback=find_fields)

    assert (result.value, result.level, result.calls) == (value, "plain", calls)
    assert asked == ["seven"]


async def test_the_fallback_is_for_plain_replies_only() -> None:
    result = await ask(
        build_model("x", "x", "x", "seven"), regex_fallback=lambda text: {"n": 7} if text == "seven" else {}
    )

    assert (result.value, result.level, result.calls) == (7, "plain", 4)


@pytest.mark.parametrize("script", [[Say(GOOD), Finish("length")], [Say(GOOD), Cut()], "x" * 200 + GOOD])
async def test_a_reply_that_is_cut_off_is_not_used(script: Script) -> None:
    model = build_model(script, '{"n": 8}', abilities=())

    result = await ask(model, limits=StructuredLimits(max_reply_chars=100))

    assert (result.value, result.calls) == (8, 2)
    assert "it was too long and was cut off" in texts(model.requests[1])[-1][1][0]


async def test_a_long_reply_is_read() -> None:
    result = await ask(build_model("x" * 20_000 + GOOD, abilities=()))

    assert result.value == 7


async def test_a_form_that_the_server_does_not_know_is_left_at_once() -> None:
    rejected = [Fail(ModelFailed("no such parameter", kind="bad_request"))]
    model = build_model(rejected, rejected, [Say(GOOD), Finish("stop", USED)])

    result = await ask(model)

    assert (result.value, result.level, result.usage, result.calls) == (7, "plain", USED, 3)
    assert [describe(request) for request in model.requests] == ["native", "schema", "plain"]


@pytest.mark.parametrize(
    "script",
    [
        [Fail(ModelFailed("down", kind="server_error", retryable=True))],
        [Fail(ContextLimitExceeded("too long"))],
        [Say("I won't."), Finish("refusal")],
        [Say(GOOD), Finish("content_filter")],
    ],
)
async def test_other_failures_and_refusals_end_the_call(script: Script) -> None:
    model = build_model(script)

    with pytest.raises(StructuredCallFailed):
        await ask(model)

    assert len(model.requests) == 1


async def test_a_bad_request_for_plain_text_ends_the_call() -> None:
    model = build_model([Fail(ModelFailed("bad", kind="bad_request"))], abilities=())

    with pytest.raises(StructuredCallFailed, match="bad"):
        await ask(model)

    assert len(model.requests) == 1


@pytest.mark.parametrize("default", [None, -1])
async def test_a_default_value_replaces_the_failure(default: int | None) -> None:
    model = build_model([Say("x"), Finish("stop", USED)], [Fail(ModelFailed("down"))], abilities=("json_mode",))

    result = await ask(model, default_value=default)

    assert result == StructuredResult(default, None, "default", USED, 2)


async def test_the_time_limit_is_for_all_calls_together() -> None:
    model = build_model([Pause(0.15), Say("x")], [Pause(10), Say(GOOD)], abilities=())
    tracker = CallTracker(model.traits, "summary")
    limits = StructuredLimits(limit_s=0.25)

    async with asyncio.timeout(5):
        result = await ask(model, default_value=0, limits=limits, tracker=tracker)

    assert (result.level, result.calls, result.usage.estimated) == ("default", 2, True)
    assert model.unfinished == 1


async def test_each_request_has_the_limit_of_output_tokens() -> None:
    model = build_model(*["x"] * 5)

    with pytest.raises(StructuredCallFailed):
        await ask(model, limits=StructuredLimits(max_output_tokens=77))

    assert {request.max_output_tokens for request in model.requests} == {77}


async def test_the_usage_of_all_calls_is_summed_with_its_cost() -> None:
    used = [
        ModelUsage(10, 5, cache_read_tokens=4, cost_usd=0.25),
        ModelUsage(20, 6, cache_write_tokens=3, cost_usd=0.5),
        ModelUsage(30, 7, cost_usd=1.0, estimated=True),
    ]
    tracing = KeptTracing()
    first, second, third = (
        [Say(text), Finish("stop", each)] for text, each in zip(["x", "y", GOOD], used, strict=True)
    )
    model = build_model(first, [Fail(ModelFailed("no", kind="bad_request"))], second, third)
    tracker = CallTracker(model.traits, "summary", tracing=tracing)

    result = await ask(model, tracker=tracker)

    assert result.usage == ModelUsage(60, 18, 4, 3, cost_usd=1.75, estimated=True)
    assert result.calls == 4
    events = tracker.build_events()
    assert [(event.model, event.role, event.cost_usd) for event in events] == [
        ("small", "summary", cost) for cost in (0.25, 0.5, 1.0)
    ]
    assert [span.failed for span in tracing.spans] == ["", "ModelFailed", "", ""]
    assert tracing.spans[0].attributes["gen_ai.response.finish_reasons"] == ["stop"]


async def test_a_cancelled_call_ends_and_its_cost_is_estimated() -> None:
    model = build_model([Say("x"), Finish("stop", USED)], [Say("y" * 70), Pause(asyncio.Event())], abilities=())
    tracker = CallTracker(model.traits, "summary")
    task = asyncio.create_task(ask(model, default_value=0, tracker=tracker))
    for _ in range(50):
        await asyncio.sleep(0)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    ended, running = tracker.build_events()
    assert model.unfinished == 1
    assert (ended.estimated, running.estimated) == (False, True)
    assert (running.output_tokens, running.cost_usd > 0) == (20, True)


class FailsInPlaceOfCancellation:
    """As an SDK does whose connection breaks while it handles the cancellation."""

    traits = build_model().traits

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as cancelled:
            raise ModelFailed("closed") from cancelled
        yield ReplyFinished("stop", USED)


async def test_a_failure_in_place_of_the_cancellation_does_not_replace_it() -> None:
    model = FailsInPlaceOfCancellation()
    tracker = CallTracker(model.traits, "summary")
    call = structured_call(model, MESSAGES, SCHEMA, parse_fn=read_n, default_value=0, tracker=tracker)
    task = asyncio.create_task(call)
    await asyncio.sleep(0.01)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_schema_can_not_refer_to_another_document() -> None:
    schema = {"type": "object", "properties": {"n": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    model = build_model(GOOD, abilities=())

    with pytest.raises(Exception, match="Unresolvable"):
        await structured_call(model, MESSAGES, schema, parse_fn=read_n, tracker=CallTracker(model.traits, "summary"))


async def test_a_value_that_is_nested_too_deeply_is_rejected() -> None:
    schema = {"type": "object", "properties": {"n": {"$ref": "#"}}}
    model = build_model('{"n":' * 400 + "{}" + "}" * 400, '{"n": {}}', abilities=())
    tracker = CallTracker(model.traits, "summary")

    result = await structured_call(model, MESSAGES, schema, parse_fn=read_n, tracker=tracker)

    assert (result.value, result.calls) == ({}, 2)
