"""The adapter of OpenAI's Responses API on the wire: its requests, and how it handles good and bad answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from helpers.provider import WireProvider
from openai import AsyncOpenAI

from chat_proc.models.cards import ModelCards
from chat_proc.models.openai_responses import ResponsesModel, build_model
from chat_proc.models.roles import ModelChoice
from everturn.models.port import (
    ContextLimitExceeded,
    MediaPart,
    ModelFailed,
    ModelRequest,
    ModelTraits,
    ModelUsage,
    Price,
    PromptMessage,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    TextPart,
    ToolCallDelta,
    encode_media,
)
from everturn_testing.models.model_contract import (
    PARAMETERS,
    LanguageModelContract,
    build_forced_request,
    build_json_request,
    build_native_request,
    build_request,
    collect_pieces,
    join_calls,
    join_text,
)

TRAITS = ModelTraits(
    "gpt-6.1-terra",
    1_050_000,
    images=True,
    documents=True,
    abilities=frozenset({"reasoning", "tool_call"}),
    price=Price(input=1.0, output=5.0, cache_read=0.05, cache_write=1.25),
)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
USAGE = {
    "input_tokens": 1_000,
    "input_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 100},
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 40},
    "total_tokens": 1_050,
}
_RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m-2026",
    "error": None,
    "incomplete_details": None,
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': 0, **data})}\n\n"


def responded(status: str, usage: Any = None, **more: Any) -> str:
    return event(f"response.{status}", response={**_RESPONSE, "status": status, "usage": usage, **more})


def said(text: str, kind: str = "output_text") -> str:
    return event(f"response.{kind}.delta", item_id="msg_1", output_index=1, content_index=0, delta=text, logprobs=[])


def thought(text: str, part: int = 0) -> str:
    place = {"item_id": "rs_1", "output_index": 0, "summary_index": part}
    return event("response.reasoning_summary_text.delta", **place, delta=text)


def began_thought(part: int) -> str:
    place = {"item_id": "rs_1", "output_index": 0, "summary_index": part}
    return event("response.reasoning_summary_part.added", **place, part={"type": "summary_text", "text": ""})


def item(kind: str, index: Any, item_type: str, **more: Any) -> str:
    return event(f"response.output_item.{kind}", output_index=index, item={"type": item_type, "id": "item_1", **more})


def called(kind: str, index: Any, name: Any = "read", call_id: Any = "a", arguments: Any = "") -> str:
    return item(kind, index, "function_call", name=name, call_id=call_id, arguments=arguments)


def wrote(index: Any, text: Any) -> str:
    return event("response.function_call_arguments.delta", item_id="fc_1", output_index=index, delta=text)


def wrote_all(index: Any, arguments: str) -> str:
    return event("response.function_call_arguments.done", item_id="fc_1", output_index=index, arguments=arguments)


CREATED = responded("created") + responded("in_progress")
COMPLETED = responded("completed", USAGE)


def build_adapter(provider: WireProvider, traits: ModelTraits = TRAITS) -> ResponsesModel:
    client = AsyncOpenAI(api_key="test-key", base_url=f"{provider.url}/v1", max_retries=0)
    return ResponsesModel(client, traits, now=lambda: NOW)


@pytest.fixture
async def model(provider: WireProvider) -> AsyncIterator[ResponsesModel]:
    adapter = build_adapter(provider)
    yield adapter
    await adapter.aclose()


class TestContract(LanguageModelContract):
    @pytest.fixture
    async def model(self, provider: WireProvider) -> AsyncIterator[ResponsesModel]:
        provider.answer_events(CREATED, said("Hel"), said("lo"), COMPLETED)
        adapter = build_adapter(provider)
        yield adapter
        await adapter.aclose()


async def test_text_and_summaries_of_the_reasoning_stream_apart(provider: WireProvider, model: ResponsesModel) -> None:
    provider.answer_events(
        CREATED,
        item("added", 0, "reasoning", summary=[]),
        began_thought(0), thought("First."), began_thought(1), thought("Then.", 1),
        item("done", 0, "reasoning", summary=[{"type": "summary_text", "text": "First."}]),
        item("added", 1, "message", role="assistant", status="in_progress", content=[]),
        event("response.content_part.added", item_id="msg_1", output_index=1, content_index=0, part={}),
        said("Hel"), said("lo"),
        event("response.output_text.done", item_id="msg_1", output_index=1, content_index=0, text="Hello"),
        item("done", 1, "message", role="assistant", status="completed", content=[]),
        event("response.something.of_tomorrow", delta="?"),
        COMPLETED,
    )  # fmt: skip

    pieces = await collect_pieces(model, build_request())

    assert pieces[:-1] == [
        ReasoningDelta("First."), ReasoningDelta("\n\n"), ReasoningDelta("Then."), TextDelta("Hel"), TextDelta("lo"),
    ]  # fmt: skip
    assert pieces[-1] == ReplyFinished(
        "stop",
        ModelUsage(
            input_tokens=1_000,
            output_tokens=50,
            cache_read_tokens=600,
            cache_write_tokens=100,
            cost_usd=pytest.approx((300 * 1 + 600 * 0.05 + 100 * 1.25 + 50 * 5) / 1e6),
        ),
        response_model="m-2026",
        response_id="resp_1",
    )


async def test_the_reasoning_of_open_models_streams_apart(provider: WireProvider, model: ResponsesModel) -> None:
    provider.answer_events(CREATED, said("hm", "reasoning_text"), said("hi"), COMPLETED)

    pieces = await collect_pieces(model, build_request())

    assert pieces[:2] == [ReasoningDelta("hm"), TextDelta("hi")]


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": 5}, {"input_tokens": 2**63, "output_tokens": "five"}])
async def test_missing_usage_is_estimated(provider: WireProvider, model: ResponsesModel, usage: Any) -> None:
    provider.answer_events(said("hello there"), responded("completed", usage))

    finish = (await collect_pieces(model, build_request("x" * 3_500, system="")))[-1]

    assert isinstance(finish, ReplyFinished)
    assert (finish.usage.input_tokens, finish.usage.output_tokens, finish.usage.estimated) == (1_000, 4, True)


@pytest.mark.parametrize(
    ("status", "details", "reason"),
    [
        ("completed", None, "stop"),
        ("completed", {}, "stop"),
        ("incomplete", {"reason": "max_output_tokens"}, "length"),
        ("incomplete", {"reason": "content_filter"}, "content_filter"),
        ("incomplete", {"reason": "a_reason_of_tomorrow"}, "length"),
        ("incomplete", None, "length"),
        ("completed", {"reason": "max_output_tokens"}, "length"),
    ],
)
async def test_the_end_of_a_reply_becomes_our_reason(
    provider: WireProvider, model: ResponsesModel, status: str, details: Any, reason: str
) -> None:
    provider.answer_events(CREATED, said("x"), responded(status, USAGE, incomplete_details=details))

    finish = (await collect_pieces(model, build_request()))[-1]

    assert isinstance(finish, ReplyFinished)
    assert (finish.reason, finish.usage.output_tokens) == (reason, 50)


async def test_a_cut_reply_may_end_like_a_complete_one(provider: WireProvider, model: ResponsesModel) -> None:
    ended = event("response.completed", response={**_RESPONSE, "status": "incomplete", "usage": USAGE})
    provider.answer_events(CREATED, said("half"), ended)

    finish = (await collect_pieces(model, build_request()))[-1]

    assert isinstance(finish, ReplyFinished)
    assert finish.reason == "length"


@pytest.mark.parametrize("text", ["I can't.", ""])
async def test_a_refusal_is_text_that_ends_as_refused(text: str, provider: WireProvider, model: ResponsesModel) -> None:
    provider.answer_events(CREATED, said(text, "refusal"), COMPLETED)

    pieces = await collect_pieces(model, build_request())

    assert join_text(pieces) == text
    assert isinstance(pieces[-1], ReplyFinished)
    assert pieces[-1].reason == "refusal"


TEXT = {"type": "output_text", "text": "Hello", "annotations": []}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [TEXT]}
REFUSAL = {**MESSAGE, "content": [{"type": "refusal", "refusal": "Hello"}]}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "read", "arguments": '{"n":1}'}
ENDED = responded("completed", USAGE, output=[{"type": "reasoning", "id": "rs_1", "summary": []}, MESSAGE, CALL])
CALL_DONE = event("response.output_item.done", output_index=2, item=CALL)
MESSAGE_DONE = event("response.output_item.done", output_index=1, item=MESSAGE)
WHOLE = {
    "only in the items": ((MESSAGE_DONE, CALL_DONE, COMPLETED), "stop"),
    "only in the response": ((ENDED,), "stop"),
    "in the items and the response": ((MESSAGE_DONE, CALL_DONE, ENDED), "stop"),
    "everywhere": ((said("Hel"), said("lo"), MESSAGE_DONE, CALL_DONE, ENDED), "stop"),
    "after a thought": ((thought("Hm."), ENDED), "stop"),
    "after the arguments": ((wrote_all(2, '{"n":1}'), ENDED), "stop"),
    "a refusal": ((responded("completed", USAGE, output=[REFUSAL, CALL]),), "refusal"),
    "cut": ((responded("incomplete", USAGE, output=[MESSAGE, CALL]),), "length"),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_a_reply_is_read_once_wherever_a_server_sends_it(
    provider: WireProvider, model: ResponsesModel, name: str
) -> None:
    events, reason = WHOLE[name]
    provider.answer_events(CREATED, *events)

    pieces = await collect_pieces(model, build_request())

    assert (join_text(pieces), join_calls(pieces)) == ("Hello", [("read", "a", '{"n":1}')])
    assert isinstance(pieces[-1], ReplyFinished)
    assert pieces[-1].reason == reason


CALLS = {
    "in parts": (
        (
            called("added", 1),
            wrote(1, '{"n":'),
            wrote(1, "1}"),
            wrote_all(1, '{"n":1}'),
            called("done", 1, arguments='{"n":1}'),
            called("added", 2, "write", "b"),
            wrote(2, "{}"),
            called("done", 2, "write", "b", "{}"),
        ),
        [("read", "a", '{"n":1}'), ("write", "b", "{}")],
    ),
    "side by side": (
        (
            called("added", 0),
            called("added", 1, "write", "b"),
            wrote(1, '{"m":'),
            wrote(0, '{"n":1}'),
            wrote(1, "2}"),
            called("done", 0, arguments='{"n":1}'),
            called("done", 1, "write", "b", '{"m":2}'),
        ),
        [("read", "a", '{"n":1}'), ("write", "b", '{"m":2}')],
    ),
    "whole at the end": (
        (called("added", 0), called("done", 0, arguments='{"n":1}'), called("done", 1, "write", "b", "{}")),
        [("read", "a", '{"n":1}'), ("write", "b", "{}")],
    ),
    "whole in an event of its own": (
        (called("added", 0), wrote_all(0, '{"n":1}')),
        [("read", "a", '{"n":1}')],
    ),
    "whole before the call": (
        (
            wrote_all(0, '{"n":1}'),
            called("done", 0, arguments='{"n":1}'),
            wrote_all(1, '{"m":2}'),
            called("done", 1, "write", "b", '{"m":2}'),
        ),
        [("read", "a", '{"n":1}'), ("write", "b", '{"m":2}')],
    ),
    "whole before the name": (
        (called("added", 0, None, None), wrote_all(0, '{"n":1}'), called("done", 0, arguments='{"n":1}')),
        [("read", "a", '{"n":1}')],
    ),
    "whole after the call": (
        (called("added", 0), called("done", 0, arguments='{"n":1}'), wrote_all(0, '{"n":1}')),
        [("read", "a", '{"n":1}')],
    ),
    "whole after an empty call": (
        (called("added", 0), called("done", 0), wrote_all(0, '{"n":1}')),
        [("read", "a", '{"n":1}')],
    ),
    "the same index for each": (
        (
            called("added", 0),
            wrote_all(0, '{"n":1}'),
            called("done", 0, arguments='{"n":1}'),
            called("added", 0, "write", "b"),
            wrote_all(0, '{"m":2}'),
            called("done", 0, "write", "b", '{"m":2}'),
        ),
        [("read", "a", '{"n":1}'), ("write", "b", '{"m":2}')],
    ),
    "the same index for each, only at the end": (
        (called("done", 0, arguments='{"n":1}'), called("done", 0, "write", "b", '{"m":2}')),
        [("read", "a", '{"n":1}'), ("write", "b", '{"m":2}')],
    ),
    "whole in events without an index": (
        (
            called("added", 0),
            called("added", 1, "write", "b"),
            event("response.function_call_arguments.done", item_id="fc_1", arguments='{"n":1}'),
            wrote_all(1, ""),
            called("done", 0, arguments='{"n":1}'),
            called("done", 1, "write", "b", '{"m":2}'),
        ),
        [("read", "a", '{"n":1}'), ("write", "b", '{"m":2}')],
    ),
    "whole from the start": (
        (called("added", 0, arguments="{}"), wrote(0, "{}"), called("done", 0, arguments="{}")),
        [("read", "a", "{}")],
    ),
    "without arguments": ((called("added", 0), called("done", 0)), [("read", "a", "")]),
    "without a name": ((called("added", 0, None), wrote(0, "{}"), called("done", 0, None, arguments="{}")), []),
    "values of other types": (
        (called("added", [], 7, None), wrote([], 5), wrote(None, '{"a":1}'), called("done", [], 7, None, {"n": 1})),
        [("7", "", '5{"a":1}')],
    ),
}


@pytest.mark.parametrize("name", CALLS)
async def test_calls_are_read_whatever_a_server_sends(provider: WireProvider, model: ResponsesModel, name: str) -> None:
    events, expected = CALLS[name]
    provider.answer_events(CREATED, said("Let me see."), *events, COMPLETED)

    pieces = await collect_pieces(model, build_request())

    assert join_text(pieces) == "Let me see."
    assert join_calls(pieces) == expected
    assert all(piece.name or piece.arguments for piece in pieces if isinstance(piece, ToolCallDelta))
    assert isinstance(pieces[-1], ReplyFinished)
    assert pieces[-1].reason == "stop"


async def test_the_request_carries_images_and_documents_and_stores_nothing(
    provider: WireProvider, model: ResponsesModel
) -> None:
    provider.answer_events(CREATED, said("ok"), COMPLETED)
    messages = (
        PromptMessage("system", (TextPart("Be brief.", cache_point=True), TextPart(""))),
        PromptMessage("user", (TextPart("Look:"), MediaPart("image/png", encode_media(b"PNG"), "a.png"))),
        PromptMessage("assistant", (TextPart("I see."), TextPart(""))),
        PromptMessage("user", (MediaPart("application/pdf", encode_media(b"%PDF"), "b.pdf"),)),
        PromptMessage("user", (TextPart(""),)),
    )

    await collect_pieces(model, ModelRequest(messages, max_output_tokens=99))

    sent = provider.received[0]
    assert (sent.path, sent.headers["authorization"]) == ("/v1/responses", "Bearer test-key")
    assert sent.body == {
        "model": "gpt-6.1-terra",
        "max_output_tokens": 99,
        "stream": True,
        "store": False,
        "reasoning": {"summary": "auto"},
        "input": [
            {"role": "system", "content": [{"type": "input_text", "text": "Be brief."}]},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look:"},
                    {"type": "input_image", "image_url": "data:image/png;base64,UE5H", "detail": "auto"},
                ],
            },
            {"role": "assistant", "content": "I see."},
            {
                "role": "user",
                "content": [
                    {
                        "type": "input_file",
                        "filename": "b.pdf",
                        "file_data": "data:application/pdf;base64,JVBERg==",
                    }
                ],
            },
        ],
    }


async def test_the_request_carries_tools_calls_and_results(provider: WireProvider, model: ResponsesModel) -> None:
    provider.answer_events(CREATED, said("ok"), COMPLETED)

    await collect_pieces(model, build_native_request())

    body = provider.received[0].body
    assert not {"parallel_tool_calls", "tool_choice", "text"} & set(body)
    assert body["tools"] == [
        {
            "type": "function",
            "name": tool,
            "description": f"Runs {tool}.",
            "parameters": PARAMETERS,
            "strict": False,
        }
        for tool in ("read", "write")
    ]
    assert body["input"][2:] == [
        {"role": "assistant", "content": "Both."},
        {"role": "assistant", "content": "At once."},
        {"type": "function_call", "call_id": "call00001", "name": "read", "arguments": '{"n": 1}'},
        {"type": "function_call", "call_id": "call00002", "name": "write", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call00001", "output": "one"},
        {"type": "function_call_output", "call_id": "call00002", "output": ""},
        {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
        {"type": "function_call", "call_id": "call00003", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call00003", "output": "three"},
    ]


async def test_a_tool_can_be_forced(provider: WireProvider, model: ResponsesModel) -> None:
    provider.answer_events(CREATED, called("added", 0), wrote(0, "{}"), called("done", 0, arguments="{}"), COMPLETED)

    pieces = await collect_pieces(model, build_forced_request())

    assert provider.received[0].body["tool_choice"] == {"type": "function", "name": "read"}
    assert join_calls(pieces) == [("read", "a", "{}")]


@pytest.mark.parametrize(
    ("schema", "form"),
    [
        (None, {"type": "json_object"}),
        (PARAMETERS, {"type": "json_schema", "name": "reply", "schema": PARAMETERS, "strict": False}),
    ],
)
async def test_a_reply_in_json_can_be_requested(
    provider: WireProvider, model: ResponsesModel, schema: dict[str, Any] | None, form: dict[str, Any]
) -> None:
    provider.answer_events(CREATED, said('{"n": 1}'), COMPLETED)

    pieces = await collect_pieces(model, build_json_request(schema))

    assert provider.received[0].body["text"] == {"format": form}
    assert join_text(pieces) == '{"n": 1}'


async def test_a_model_that_does_not_reason_is_not_asked_for_summaries(provider: WireProvider) -> None:
    provider.answer_events(CREATED, said("ok"), COMPLETED)
    model = build_adapter(provider, replace(TRAITS, abilities=frozenset()))

    await collect_pieces(model, build_request())
    await model.aclose()

    assert "reasoning" not in provider.received[0].body


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"code": "server_error", "message": "broken"}, "server_error", True),
        ({"code": "rate_limit_exceeded", "message": "slow down"}, "rate_limited", True),
        ({"code": "invalid_prompt", "message": "no"}, "provider_error", False),
        (None, "provider_error", True),
    ],
)
@pytest.mark.parametrize("form", ["failed", "error", "nested"])
async def test_an_error_inside_the_stream_says_whether_to_try_again(
    provider: WireProvider, model: ResponsesModel, error: Any, kind: str, retryable: bool, form: str
) -> None:
    fields = error or {"code": None, "message": "?"}
    forms = {
        "failed": responded("failed", error=error),
        "error": event("error", **fields, param=None),
        "nested": event("error", error={"type": None, "param": None, **fields}),
    }
    provider.answer_events(CREATED, said("half"), forms[form])

    with pytest.raises(ModelFailed, match=r"model's server") as raised:
        await collect_pieces(model, build_request())

    assert (raised.value.kind, raised.value.retryable) == (kind, retryable)
    assert str((error or {}).get("message", "")) in raised.value.provider_text


async def test_a_too_long_prompt_has_its_own_error_also_inside_the_stream(
    provider: WireProvider, model: ResponsesModel
) -> None:
    error = {"message": "too many tokens", "code": "context_length_exceeded"}
    provider.answer_error(400, {"error": error})
    provider.answer_events(CREATED, responded("failed", error=error))

    for _ in range(2):
        with pytest.raises(ContextLimitExceeded):
            await collect_pieces(model, build_request())


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [(400, "invalid_value", False), (401, "invalid_api_key", False), (429, "rate_limit_exceeded", True)],
)
async def test_error_answers_say_whether_to_try_again(
    provider: WireProvider, model: ResponsesModel, status: int, code: str, retryable: bool
) -> None:
    provider.answer_error(status, {"error": {"message": "not now", "code": code}}, retry_after_ms="1500")

    with pytest.raises(ModelFailed, match=rf"\({status}\)\.$") as raised:
        await collect_pieces(model, build_request())

    assert (raised.value.retryable, raised.value.retry_after_s) == (retryable, 1.5)
    assert len(provider.received) == 1


BAD_STREAMS = {
    "no end": ([CREATED.encode(), said("half").encode()], False),
    "nothing at all": ([], False),
    "cut in the middle of an event": ([said("half").encode()[:20]], True),
    "no JSON": ([b"data: {nonsense\n\n"], False),
    "wrong types": ([b'data: {"type": "response.completed", "response": 7}\n\n', b'data: {"type": 5}\n\n'], False),
    "HTML": ([b"<html><body>Bad gateway</body></html>"], False),
}


@pytest.mark.parametrize("name", BAD_STREAMS)
async def test_a_stream_that_makes_no_sense_is_a_passing_failure(
    provider: WireProvider, model: ResponsesModel, name: str
) -> None:
    chunks, cut = BAD_STREAMS[name]
    provider.answer_events(cut=cut)
    provider.answers[0].chunks = chunks

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert raised.value.retryable


async def test_closing_the_reply_closes_the_http_stream(provider: WireProvider, model: ResponsesModel) -> None:
    provider.answer_events(CREATED, said("half"), hang=True)

    async with aclosing(model.generate(build_request())) as pieces:
        assert await anext(pieces) == TextDelta("half")

    async with asyncio.timeout(5):
        await provider.client_left.wait()


def test_the_default_model_calls_tools_over_this_api_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    model = build_model(ModelChoice("openai-responses", "gpt-6.1-terra", "test"), ModelCards(), None)

    assert (model.traits.provider, model.traits.server_address) == ("openai", "api.openai.com")
    assert {"tool_call", "reasoning"} <= model.traits.abilities
    assert model.traits.documents and model.traits.price is not None
