"""The OpenAI adapter on the wire: its requests, and how it handles good and bad answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest
from helpers.provider import WireProvider, check_body
from openai import AsyncOpenAI
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from chat_proc.models.cards import ModelCards
from chat_proc.models.openai import OpenAIModel, build_model
from chat_proc.models.retry import ModelRetryLimits, RetryingModel
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
    price=Price(input=1.0, output=5.0, cache_read=0.05, cache_write=1.25),
)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DONE = "data: [DONE]\n\n"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> str:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}
    return f"data: {json.dumps(body)}\n\n"


def said(text: str) -> str:
    return chunk({"content": text})


def counted(**details: int) -> str:
    usage = {"prompt_tokens": 1_000, "completion_tokens": 5, "total_tokens": 1_005, "prompt_tokens_details": details}
    return chunk(usage=usage)


STOPPED = chunk({}, "stop")


def build_adapter(provider: WireProvider, traits: ModelTraits = TRAITS) -> OpenAIModel:
    client = AsyncOpenAI(api_key="test-key", base_url=f"{provider.url}/v1", max_retries=0)
    return OpenAIModel(client, traits, now=lambda: NOW)


@pytest.fixture
async def model(provider: WireProvider) -> AsyncIterator[OpenAIModel]:
    adapter = build_adapter(provider)
    yield adapter
    await adapter.aclose()


class TestContract(LanguageModelContract):
    @pytest.fixture
    async def model(self, provider: WireProvider) -> AsyncIterator[OpenAIModel]:
        provider.answer_events(chunk({"role": "assistant", "content": ""}), said("Hel"), said("lo"), STOPPED, DONE)
        adapter = build_adapter(provider)
        yield adapter
        await adapter.aclose()


async def test_text_streams_and_the_usage_closes_the_reply(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_events(
        said("Hel"), ": keep-alive\n\n", said("lo"), STOPPED, counted(cached_tokens=600, cache_write_tokens=100), DONE
    )

    pieces = await collect_pieces(model, build_request())

    assert pieces[:2] == [TextDelta("Hel"), TextDelta("lo")]
    assert pieces[2] == ReplyFinished(
        "stop",
        ModelUsage(
            input_tokens=1_000,
            output_tokens=5,
            cache_read_tokens=600,
            cache_write_tokens=100,
            cost_usd=pytest.approx((300 * 1 + 600 * 0.05 + 100 * 1.25 + 5 * 5) / 1e6),
        ),
        response_model="m",
        response_id="c",
    )


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_of_compatible_servers_streams_apart(
    provider: WireProvider, model: OpenAIModel, field: str
) -> None:
    provider.answer_events(chunk({field: "hm"}), said("hi"), STOPPED, counted(), DONE)

    pieces = await collect_pieces(model, build_request())

    assert pieces[:2] == [ReasoningDelta("hm"), TextDelta("hi")]


async def test_missing_usage_is_estimated_and_an_unknown_model_has_no_cost(provider: WireProvider) -> None:
    provider.answer_events(said("hello there"), STOPPED, DONE)
    traits = ModelTraits("my-local-model", 8_000, images=False, documents=False, provider="openai")
    model = build_adapter(provider, traits)

    finish = (await collect_pieces(model, build_request("x" * 3_500, system="")))[-1]
    await model.aclose()

    assert finish == ReplyFinished("stop", ModelUsage(1_000, 4, estimated=True, cost_known=False), "m", "c")


async def test_the_request_carries_images_and_files(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_events(said("ok"), STOPPED, DONE)
    messages = (
        PromptMessage("system", (TextPart("Be brief.", cache_point=True),)),
        PromptMessage("user", (TextPart("Look:"), MediaPart("image/png", encode_media(b"PNG"), "a.png"))),
        PromptMessage("assistant", (TextPart("I see."),)),
        PromptMessage("user", (MediaPart("application/pdf", encode_media(b"%PDF"), "b.pdf"),)),
    )

    await collect_pieces(model, ModelRequest(messages, max_output_tokens=99))

    sent = provider.received[0]
    assert sent.path == "/v1/chat/completions"
    assert sent.headers["authorization"] == "Bearer test-key"
    assert sent.body == {
        "model": "gpt-6.1-terra",
        "max_tokens": 99,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look:"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,UE5H"}},
                ],
            },
            {"role": "assistant", "content": "I see."},
            {
                "role": "user",
                "content": [
                    {
                        "type": "file",
                        "file": {"filename": "b.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
                    }
                ],
            },
        ],
    }


@pytest.mark.parametrize(
    ("finish_reason", "reason"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("a_reason_of_tomorrow", "stop")],
)
async def test_finish_reasons_become_ours(
    provider: WireProvider, model: OpenAIModel, finish_reason: str, reason: str
) -> None:
    provider.answer_events(said("x"), chunk({}, finish_reason), DONE)

    finish = (await collect_pieces(model, build_request()))[-1]

    assert isinstance(finish, ReplyFinished)
    assert finish.reason == reason


@pytest.mark.parametrize("closing", [None, "stop", "length"])
async def test_a_refusal_is_text_that_ends_as_refused(
    provider: WireProvider, model: OpenAIModel, closing: str | None
) -> None:
    provider.answer_events(chunk({"refusal": "I can't."}), chunk({}, closing), DONE)

    pieces = await collect_pieces(model, build_request())

    assert join_text(pieces) == "I can't."
    assert isinstance(pieces[-1], ReplyFinished)
    assert pieces[-1].reason == "refusal"


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, "invalid_value", False),
        (404, "model_not_found", False),
        (429, "rate_limit_exceeded", True),
        (429, "insufficient_quota", False),
        (500, "server_error", True),
        (503, "overloaded", True),
    ],
)
async def test_error_answers_say_whether_to_try_again(
    provider: WireProvider, model: OpenAIModel, status: int, code: str, retryable: bool
) -> None:
    provider.answer_error(status, {"error": {"message": "not now", "code": code}}, retry_after_ms="1500")

    with pytest.raises(ModelFailed, match=rf"\({status}\)\.$") as raised:
        await collect_pieces(model, build_request())

    assert raised.value.retryable is retryable
    assert raised.value.retry_after_s == 1.5
    assert "not now" not in str(raised.value)
    assert raised.value.provider_text == f"{status} {code}: not now"
    assert len(provider.received) == 1


async def test_a_too_long_prompt_has_its_own_error(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_error(400, {"error": {"message": "too many tokens", "code": "context_length_exceeded"}})

    with pytest.raises(ContextLimitExceeded):
        await collect_pieces(model, build_request())


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        ({"message": "broken", "type": "server_error"}, True),
        ({"message": "broken", "code": 502}, True),
        ({"message": "broken", "code": "invalid_prompt"}, False),
        ({"message": "broken"}, True),
    ],
)
async def test_an_error_inside_the_stream_says_whether_to_try_again(
    provider: WireProvider, model: OpenAIModel, error: dict[str, Any], retryable: bool
) -> None:
    provider.answer_events(said("half"), f"data: {json.dumps({'error': error})}\n\n")

    with pytest.raises(ModelFailed, match=r"^The language model did not answer\. The .*model's server") as raised:
        await collect_pieces(model, build_request())

    assert raised.value.retryable is retryable


BAD_STREAMS = {
    "no finish": ([said("half").encode()], False),
    "only the end mark": ([DONE.encode()], False),
    "nothing at all": ([], False),
    "cut in the middle of an event": ([said("half").encode()[:20]], True),
    "cut between events": ([said("half").encode()], True),
    "bad UTF-8": ([b'data: {"choices": "\xff\xfe"}\n\n'], False),
    "no JSON": ([b"data: {nonsense\n\n"], False),
    "JSON of no known shape": ([b"data: [1, 2, 3]\n\n"], False),
    "wrong types": ([b'data: {"choices": [{"delta": 5}], "usage": "x"}\n\n', b'data: {"choices": 7}\n\n'], False),
    "HTML": ([b"<html><body>Bad gateway</body></html>"], False),
}


@pytest.mark.parametrize("name", BAD_STREAMS)
async def test_a_stream_that_makes_no_sense_is_a_passing_failure(
    provider: WireProvider, model: OpenAIModel, name: str
) -> None:
    chunks, cut = BAD_STREAMS[name]
    provider.answer_events(cut=cut)
    provider.answers[0].chunks = chunks

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert raised.value.retryable


async def test_a_refused_connection_is_a_passing_failure() -> None:
    model = OpenAIModel(AsyncOpenAI(api_key="k", base_url="http://127.0.0.1:9/v1", max_retries=0), TRAITS)

    with pytest.raises(ModelFailed, match="connection to the model's server failed") as raised:
        await collect_pieces(model, build_request())

    assert raised.value.retryable


async def test_closing_the_reply_closes_the_http_stream(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_events(said("half"), hang=True)

    async with aclosing(model.generate(build_request())) as pieces:
        assert await anext(pieces) == TextDelta("half")

    async with asyncio.timeout(5):
        await provider.client_left.wait()


async def test_a_storm_of_refusals_ends_in_an_answer(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_error(429, {"error": {"message": "slow down"}}, retry_after="0.01")
    provider.answer_error(500, {"error": {"message": "oh"}})
    provider.answer_events(said("at last"), STOPPED, DONE)
    retrying = RetryingModel(model, limits=ModelRetryLimits(first_backoff_s=0.001))

    assert join_text(await collect_pieces(retrying, build_request())) == "at last"


def test_only_the_official_server_is_taken_to_read_media(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    choice = ModelChoice("openai", "a-model-of-tomorrow", "test")
    official = build_model(choice, ModelCards(), None)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    compatible = build_model(choice, ModelCards(), None)

    assert (official.traits.images, compatible.traits.images) == (True, False)


async def test_a_character_that_the_network_cuts_arrives_whole(provider: WireProvider, model: OpenAIModel) -> None:
    events = (
        "".join(
            (
                said("Stra\u00dfe \U0001f600"),
                STOPPED,
                counted(),
                DONE,
            )
        )
        .replace("\\u00df", "\u00df")
        .replace("\\ud83d\\ude00", "\U0001f600")
        .encode()
    )
    provider.answer_bytes(events)

    pieces = await collect_pieces(model, build_request())

    assert join_text(pieces) == "Stra\u00dfe \U0001f600"
    assert "\u00df".encode() in events


def called(*calls: dict[str, Any], content: str | None = None) -> str:
    return chunk({"content": content, "tool_calls": list(calls)})


def fragment(arguments: Any = None, *, name: str | None = None, **more: Any) -> dict[str, Any]:
    """One entry of `tool_calls`; without `index` or `id` unless they are given."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"type": "function", "function": function, **more}


SPLIT = (
    called(fragment("", name="read", index=0, id="a")),
    called(fragment('{"n":', index=0)),
    called(fragment("1}", index=0)),
    called(fragment("", name="read", index=1, id="b")),
    called(fragment('{"n":2}', index=1)),
)
TWO = [("read", "a", '{"n":1}'), ("read", "b", '{"n":2}')]
TWO_WITHOUT_ID = [("read", "", '{"n":1}'), ("read", "", '{"n":2}')]
CALLS = {
    "as OpenAI sends them": (SPLIT, TWO),
    "an index of 1 for the first call": (
        (called(fragment("", name="read", index=1, id="a")), called(fragment('{"n":1}', index=1))),
        TWO[:1],
    ),
    "whole calls in one delta, without indexes": (
        (called(fragment('{"n":1}', name="read", id="a"), fragment('{"n":2}', name="read", id="b")),),
        TWO,
    ),
    "parts without indexes": (
        (
            called(fragment('{"n":', name="read", id="a")),
            called(fragment("1}")),
            called(fragment('{"n":2}', name="read", id="b")),
        ),
        TWO,
    ),
    "index 0 for all calls": (
        (
            called(fragment('{"n":1}', name="read", index=0, id="a")),
            called(fragment('{"n":2}', name="read", index=0, id="b")),
        ),
        TWO,
    ),
    "index 0 for all calls, and no ids": (
        (called(fragment('{"n":1}', name="read", index=0)), called(fragment('{"n":2}', name="read", index=0))),
        TWO_WITHOUT_ID,
    ),
    "index 0 for calls of two tools, and no ids": (
        (called(fragment("", name="read", index=0)), called(fragment("{}", name="write", index=0))),
        [("read", "", ""), ("write", "", "{}")],
    ),
    "arguments as an object": (
        (called(fragment({"n": 1}, name="read", index=0, id="a"), fragment({"n": 2}, name="read", index=1, id="b")),),
        [("read", "a", '{"n": 1}'), ("read", "b", '{"n": 2}')],
    ),
    "an empty id and name in each further part": (
        (
            called(fragment("", name="read", index=0, id="a")),
            called(fragment('{"n":', name="", index=0, id="")),
            called(fragment("", name="", index=0, id="")),
            called(fragment("1}", name="", index=0, id="")),
        ),
        TWO[:1],
    ),
    "the id and name again in each part": (
        (
            called(fragment('{"n":', name="read", index=0, id="a")),
            called(fragment("1}", name="read", index=0, id="a")),
            called(fragment('{"n":2}', name="read", index=1, id="b")),
        ),
        TWO,
    ),
    "the same index and id for all calls": (
        (
            called(fragment('{"n":1}', name="read", index=0, id="a")),
            called(fragment('{"n":', name="read", index=0, id="a")),
            called(fragment("2}", name="read", index=0, id="a")),
            called(fragment("{}", name="write", index=0, id="a")),
        ),
        [("read", "a", '{"n":1}'), ("read", "a", '{"n":2}'), ("write", "a", "{}")],
    ),
    "the same id for all calls, and no indexes": (
        (called(fragment('{"n":1}', name="read", id="a"), fragment('{"n":2}', name="read", id="a")),),
        [("read", "a", '{"n":1}'), ("read", "a", '{"n":2}')],
    ),
    "the same id for all calls in parts, and no indexes": (
        (
            called(fragment('{"n":1}', name="read", id="a")),
            called(fragment('{"n":', name="read", id="a")),
            called(fragment("2}", id="a")),
        ),
        [("read", "a", '{"n":1}'), ("read", "a", '{"n":2}')],
    ),
    "the id and name again in a part that begins with a brace": (
        (
            called(fragment('{"n":', name="read", index=0, id="a")),
            called(fragment('{"m":{}', name="read", index=0, id="a")),
            called(fragment("}}", name="read", index=0, id="a")),
        ),
        [("read", "a", '{"n":{"m":{}}}')],
    ),
    "another id in each part": (
        (called(fragment('{"n":', name="read", index=0, id="a")), called(fragment("1}", index=0, id="x"))),
        TWO[:1],
    ),
    "an id before the name": (
        (called(fragment(None, index=0, id="a")), called(fragment('{"n":1}', name="read", index=0))),
        TWO_WITHOUT_ID[:1],
    ),
    "a call without arguments": ((called(fragment(None, name="read", index=0, id="a")),), [("read", "a", "")]),
    "a call without a name": ((called(fragment('{"n":1}', index=0, id="a")),), []),
    "values of other types": (
        (
            called({"index": "0", "id": 7, "function": None}, {"index": None}),
            chunk({"tool_calls": "read"}),
            called(fragment('{"n":1}', name="read", index=True, id="a")),
        ),
        TWO[:1],
    ),
}


@pytest.mark.parametrize("name", CALLS)
async def test_calls_are_read_whatever_a_server_sends(provider: WireProvider, model: OpenAIModel, name: str) -> None:
    events, expected = CALLS[name]
    provider.answer_events(*events, chunk({}, "tool_calls"))

    pieces = await collect_pieces(model, build_request())

    assert join_calls(pieces) == expected
    assert all(piece.name or piece.arguments for piece in pieces if isinstance(piece, ToolCallDelta))


@pytest.mark.parametrize("finish", ["tool_calls", "function_call", "tool_use", "stop"])
async def test_text_beside_calls_and_any_finish_reason_end_a_reply_with_calls(
    provider: WireProvider, model: OpenAIModel, finish: str
) -> None:
    provider.answer_events(
        chunk({}), called(fragment("{}", name="read", index=0, id="a"), content="Let me see."),
        chunk({"tool_calls": []}), chunk({}, finish), counted(),
    )  # fmt: skip

    pieces = await collect_pieces(model, build_request())

    assert pieces[:2] == [TextDelta("Let me see."), ToolCallDelta(0, "{}", "read", "a")]
    assert isinstance(pieces[-1], ReplyFinished)
    assert (pieces[-1].reason, pieces[-1].usage.input_tokens) == ("stop", 1_000)


async def test_a_character_that_two_parts_of_the_arguments_share_arrives_whole(
    provider: WireProvider, model: OpenAIModel
) -> None:
    provider.answer_events(
        called(fragment('{"a":"\ud83d', name="read", index=0)), called(fragment('\ude00"}', index=0)), STOPPED, DONE
    )

    assert join_calls(await collect_pieces(model, build_request())) == [("read", "", '{"a":"\U0001f600"}')]


async def test_a_call_cut_off_by_the_token_limit_says_so(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_events(called(fragment('{"n":', name="read", index=0)), chunk({}, "length"), DONE)

    finish = (await collect_pieces(model, build_request()))[-1]

    assert isinstance(finish, ReplyFinished)
    assert finish.reason == "length" and finish.usage.output_tokens > 0


async def test_the_request_carries_tools_calls_and_results(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_events(said("ok"), STOPPED, DONE)

    await collect_pieces(model, build_native_request())

    body = provider.received[0].body
    assert body["tools"] == [
        {"type": "function", "function": {"name": tool, "description": f"Runs {tool}.", "parameters": PARAMETERS}}
        for tool in ("read", "write")
    ]
    assert not {"parallel_tool_calls", "tool_choice", "response_format"} & set(body)
    assert body["messages"][2:] == [
        {
            "role": "assistant",
            "content": "Both.\n\nAt once.",
            "tool_calls": [
                {"id": "call00001", "type": "function", "function": {"name": "read", "arguments": '{"n": 1}'}},
                {"id": "call00002", "type": "function", "function": {"name": "write", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "call00001", "content": "one"},
        {"role": "tool", "tool_call_id": "call00002", "content": ""},
        {"role": "user", "content": "And now?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call00003", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call00003", "content": "three"},
    ]
    check_body(CompletionCreateParamsStreaming, body)


async def test_a_tool_can_be_forced(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_events(called(fragment("{}", name="read", id="a", index=0)), STOPPED, DONE)

    pieces = await collect_pieces(model, build_forced_request())

    body = provider.received[0].body
    assert body["tool_choice"] == {"type": "function", "function": {"name": "read"}}
    assert join_calls(pieces) == [("read", "a", "{}")]
    check_body(CompletionCreateParamsStreaming, body)


@pytest.mark.parametrize(
    ("schema", "response_format"),
    [
        (None, {"type": "json_object"}),
        (PARAMETERS, {"type": "json_schema", "json_schema": {"name": "reply", "schema": PARAMETERS}}),
    ],
)
async def test_a_reply_in_json_can_be_requested(
    provider: WireProvider, model: OpenAIModel, schema: dict[str, Any] | None, response_format: dict[str, Any]
) -> None:
    provider.answer_events(said('{"n": 1}'), STOPPED, DONE)

    pieces = await collect_pieces(model, build_json_request(schema))

    body = provider.received[0].body
    assert body["response_format"] == response_format
    assert join_text(pieces) == '{"n": 1}'
    check_body(CompletionCreateParamsStreaming, body)
