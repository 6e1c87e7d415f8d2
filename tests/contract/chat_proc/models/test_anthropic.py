"""The Anthropic adapter on the wire: its requests, and how it handles good and bad answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from helpers.provider import WireProvider, check_body

from chat_proc.models.anthropic import AnthropicModel, build_model
from chat_proc.models.cards import ModelCards, find_built_in
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
    "claude-haiku-4-5",
    200_000,
    images=True,
    documents=True,
    price=Price(input=1.0, output=5.0, cache_read=0.1, cache_write=1.25),
)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"


def started(**usage: int) -> str:
    counts = {"input_tokens": 10, "output_tokens": 1, **usage}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": counts}
    return event("message_start", message=message)


def said(text: str) -> str:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


def thought(text: str) -> str:
    return event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": text})


def stopped(reason: str = "end_turn", **usage: int) -> str:
    delta = {"stop_reason": reason, "stop_sequence": None}
    ended = event("message_delta", delta=delta, usage={"output_tokens": 5, **usage})
    return ended + event("message_stop")


OPENED = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
PING = event("ping")


@pytest.fixture
async def model(provider: WireProvider) -> AsyncIterator[AnthropicModel]:
    client = AsyncAnthropic(api_key="test-key", base_url=provider.url, max_retries=0)
    adapter = AnthropicModel(client, TRAITS, now=lambda: NOW)
    yield adapter
    await adapter.aclose()


class TestContract(LanguageModelContract):
    @pytest.fixture
    async def model(self, provider: WireProvider) -> AsyncIterator[AnthropicModel]:
        provider.answer_events(started(), OPENED, said("Hel"), PING, said("lo"), stopped())
        client = AsyncAnthropic(api_key="test-key", base_url=provider.url, max_retries=0)
        adapter = AnthropicModel(client, TRAITS)
        yield adapter
        await adapter.aclose()


async def test_text_and_thinking_stream_apart_and_the_usage_closes_the_reply(
    provider: WireProvider, model: AnthropicModel
) -> None:
    usage = {"cache_read_input_tokens": 1_000, "cache_creation_input_tokens": 200}
    provider.answer_events(started(**usage), thought("hm"), said("Hel"), PING, said("lo"), stopped())

    pieces = await collect_pieces(model, build_request())

    assert pieces[:3] == [ReasoningDelta("hm"), TextDelta("Hel"), TextDelta("lo")]
    assert pieces[3] == ReplyFinished(
        "stop",
        ModelUsage(
            input_tokens=1_210,
            output_tokens=5,
            cache_read_tokens=1_000,
            cache_write_tokens=200,
            cost_usd=pytest.approx((10 * 1 + 1_000 * 0.1 + 200 * 1.25 + 5 * 5) / 1e6),
        ),
        response_model="m",
        response_id="msg_1",
    )


@pytest.mark.parametrize(
    ("at_start", "at_end"),
    [
        ({}, {}),
        ({"input_tokens": 2**63}, {"output_tokens": 2**63}),
        ({"input_tokens": 10}, {"output_tokens": "five"}),
        ({"input_tokens": 10, "output_tokens": 1}, {"output_tokens": 2**63}),
        ({"input_tokens": 10, "output_tokens": 1}, {}),
    ],
)
async def test_a_gateway_without_usable_usage_gets_an_estimate(
    provider: WireProvider, model: AnthropicModel, at_start: dict[str, Any], at_end: dict[str, Any]
) -> None:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": at_start}
    ended = event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=at_end)
    provider.answer_events(event("message_start", message=message), said("hello there"), ended, event("message_stop"))

    finish = (await collect_pieces(model, build_request("x" * 3_500, system="")))[-1]

    assert isinstance(finish, ReplyFinished)
    assert (finish.usage.input_tokens, finish.usage.output_tokens, finish.usage.estimated) == (1_000, 4, True)
    assert finish.usage.cost_usd > 0


async def test_the_request_carries_cache_points_images_and_documents(
    provider: WireProvider, model: AnthropicModel
) -> None:
    provider.answer_events(started(), said("ok"), stopped())
    messages = (
        PromptMessage("system", (TextPart("Be brief.", cache_point=True), TextPart(""))),
        PromptMessage("user", (TextPart("Look:"), MediaPart("image/png", encode_media(b"PNG"), "a.png"))),
        PromptMessage("assistant", (TextPart("I see.", cache_point=True),)),
        PromptMessage("user", (MediaPart("application/pdf", encode_media(b"%PDF"), "b.pdf"), TextPart("And this?"))),
    )

    await collect_pieces(model, ModelRequest(messages, max_output_tokens=99))

    cached = {"cache_control": {"type": "ephemeral"}}
    sent = provider.received[0]
    assert sent.path == "/v1/messages"
    assert sent.body == {
        "model": "claude-haiku-4-5",
        "max_tokens": 99,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", **cached}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look:"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "UE5H"}},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "I see.", **cached}]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "title": "b.pdf",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
                    },
                    {"type": "text", "text": "And this?"},
                ],
            },
        ],
    }


async def test_the_cache_points_of_system_and_messages_together_are_at_most_four(
    provider: WireProvider, model: AnthropicModel
) -> None:
    provider.answer_events(started(), said("ok"), stopped())
    texts = tuple(TextPart(f"part {n}", cache_point=True) for n in range(6))
    messages = (PromptMessage("system", (TextPart("rules", cache_point=True),)), PromptMessage("user", texts))

    await collect_pieces(model, ModelRequest(messages, max_output_tokens=9))

    body = provider.received[0].body
    marked = [part["text"] for part in body["system"] + body["messages"][0]["content"] if "cache_control" in part]
    assert marked == ["rules", "part 3", "part 4", "part 5"]


async def test_a_newer_model_is_asked_to_show_its_thinking(provider: WireProvider) -> None:
    provider.answer_events(started(), said("ok"), stopped())
    client = AsyncAnthropic(api_key="test-key", base_url=provider.url, max_retries=0)
    model = AnthropicModel(client, TRAITS, adaptive_thinking=True)

    await collect_pieces(model, build_request())
    await model.aclose()

    assert provider.received[0].body["thinking"] == {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("stop_reason", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("a_reason_of_tomorrow", "stop"),
    ],
)
async def test_stop_reasons_become_ours(
    provider: WireProvider, model: AnthropicModel, stop_reason: str, reason: str
) -> None:
    provider.answer_events(started(), said("x"), stopped(stop_reason))

    finish = (await collect_pieces(model, build_request()))[-1]

    assert isinstance(finish, ReplyFinished)
    assert finish.reason == reason


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request_error", False),
        (404, "not_found_error", False),
        (429, "rate_limit_error", True),
        (500, "api_error", True),
        (503, "api_error", True),
        (529, "overloaded_error", True),
    ],
)
async def test_error_answers_say_whether_to_try_again(
    provider: WireProvider, model: AnthropicModel, status: int, kind: str, retryable: bool
) -> None:
    provider.answer_error(status, {"type": "error", "error": {"type": kind, "message": "not now"}})

    with pytest.raises(ModelFailed, match=rf"\({status}\)\.$") as raised:
        await collect_pieces(model, build_request())

    assert raised.value.retryable is retryable
    assert len(provider.received) == 1


async def test_a_rate_limit_says_how_long_to_wait(provider: WireProvider, model: AnthropicModel) -> None:
    provider.answer_error(429, {"type": "error", "error": {"type": "rate_limit_error"}}, retry_after="12")

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert raised.value.retry_after_s == 12.0


async def test_a_refused_key_is_not_repeated_in_the_message(provider: WireProvider, model: AnthropicModel) -> None:
    provider.answer_error(401, {"type": "error", "error": {"type": "authentication_error", "message": "bad test-key"}})

    with pytest.raises(ModelFailed, match="rejected the API key") as raised:
        await collect_pieces(model, build_request())

    assert "test-key" not in str(raised.value)
    assert not raised.value.retryable


@pytest.mark.parametrize(
    ("status", "message"),
    [(400, "prompt is too long: 208310 tokens > 200000 maximum"), (413, "Request exceeds the maximum size")],
)
async def test_a_too_long_prompt_has_its_own_error(
    provider: WireProvider, model: AnthropicModel, status: int, message: str
) -> None:
    provider.answer_error(status, {"type": "error", "error": {"type": "invalid_request_error", "message": message}})

    with pytest.raises(ContextLimitExceeded):
        await collect_pieces(model, build_request())


FILTERED = {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"}


async def test_a_reply_that_a_filter_blocks_ends_as_filtered(provider: WireProvider, model: AnthropicModel) -> None:
    provider.answer_error(400, {"type": "error", "error": FILTERED})
    provider.answer_events(started(), OPENED, said("Once"), event("error", error=FILTERED))

    at_once = await collect_pieces(model, build_request())
    later = await collect_pieces(model, build_request())

    assert (join_text(at_once), join_text(later)) == ("", "Once")
    for pieces in (at_once, later):
        assert isinstance(pieces[-1], ReplyFinished)
        assert pieces[-1].reason == "content_filter"
        assert (pieces[-1].usage.output_tokens > 0) == (len(pieces) > 1)


async def test_an_error_inside_the_stream_is_a_passing_failure(provider: WireProvider, model: AnthropicModel) -> None:
    error = {"type": "overloaded_error", "message": "Overloaded"}
    provider.answer_events(started(), said("half"), event("error", error=error))

    with pytest.raises(ModelFailed, match="overloaded\\.") as raised:
        await collect_pieces(model, build_request())

    assert raised.value.retryable


BAD_STREAMS = {
    "no finish": ([started().encode(), said("half").encode()], False),
    "nothing at all": ([], False),
    "cut in the middle of an event": ([started().encode(), said("half").encode()[:20]], True),
    "cut between events": ([started().encode(), said("half").encode()], True),
    "bad UTF-8": ([started().encode(), b'event: content_block_delta\ndata: {"type": "\xff\xfe"}\n\n'], False),
    "no JSON": ([started().encode(), b"event: content_block_delta\ndata: {nonsense\n\n"], False),
    "JSON of no known shape": ([b"event: message_start\ndata: [1, 2, 3]\n\n"], False),
    "wrong types": ([b'event: message_delta\ndata: {"type": "message_delta", "delta": 5, "usage": "x"}\n\n'], False),
    "HTML": ([b"<html><body>Bad gateway</body></html>"], False),
}


@pytest.mark.parametrize("name", BAD_STREAMS)
async def test_a_stream_that_makes_no_sense_is_a_passing_failure(
    provider: WireProvider, model: AnthropicModel, name: str
) -> None:
    chunks, cut = BAD_STREAMS[name]
    provider.answer_events(cut=cut)
    provider.answers[0].chunks = chunks

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert raised.value.retryable


async def test_a_refused_connection_is_a_passing_failure() -> None:
    client = AsyncAnthropic(api_key="test-key", base_url="http://127.0.0.1:9", max_retries=0)
    model = AnthropicModel(client, TRAITS)

    with pytest.raises(ModelFailed, match="connection to the model's server failed") as raised:
        await collect_pieces(model, build_request())

    assert raised.value.retryable


async def test_closing_the_reply_closes_the_http_stream(provider: WireProvider, model: AnthropicModel) -> None:
    provider.answer_events(started(), said("half"), hang=True)

    async with aclosing(model.generate(build_request())) as pieces:
        assert await anext(pieces) == TextDelta("half")

    async with asyncio.timeout(5):
        await provider.client_left.wait()


async def test_a_stalled_stream_ends_at_the_idle_timeout(provider: WireProvider, model: AnthropicModel) -> None:
    provider.answer_events(started(), said("half"), hang=True)
    retrying = RetryingModel(model, limits=ModelRetryLimits(idle_timeout_s=0.1))

    with pytest.raises(ModelFailed, match="silent") as raised:
        await collect_pieces(retrying, build_request())

    assert raised.value.partial
    async with asyncio.timeout(5):
        await provider.client_left.wait()


async def test_a_storm_of_refusals_ends_in_an_answer(provider: WireProvider, model: AnthropicModel) -> None:
    provider.answer_error(429, {"type": "error", "error": {"type": "rate_limit_error"}}, retry_after="0.01")
    provider.answer_error(529, {"type": "error", "error": {"type": "overloaded_error"}})
    provider.answer_error(500, {"type": "error", "error": {"type": "api_error"}})
    provider.answer_events(started(), said("at last"), stopped())
    retrying = RetryingModel(model, limits=ModelRetryLimits(first_backoff_s=0.001))

    assert join_text(await collect_pieces(retrying, build_request())) == "at last"


def test_the_model_is_built_from_the_sdks_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")

    model = build_model(ModelChoice("anthropic", "claude-sonnet-5-5", "test"), ModelCards(), None)

    card = find_built_in("claude-sonnet-5-5")
    assert card is not None
    assert model.traits == card.build_traits(
        "claude-sonnet-5-5", provider="anthropic", server_address="api.anthropic.com"
    )


async def test_a_character_that_the_network_cuts_arrives_whole(provider: WireProvider, model: AnthropicModel) -> None:
    events = (
        "".join(
            (
                started(),
                said("Stra\u00dfe \U0001f600"),
                stopped(),
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


def called(index: int, name: str, call_id: str, arguments: dict[str, Any] | None = None) -> str:
    block = {"type": "tool_use", "id": call_id, "name": name, "input": arguments or {}}
    return event("content_block_start", index=index, content_block=block)


def wrote(index: Any, text: Any) -> str:
    return event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": text})


CALLS = {
    "in parts": (
        (
            called(1, "read", "a"),
            wrote(1, ""),
            wrote(1, '{"n":'),
            wrote(1, "1}"),
            called(2, "read", "b"),
            wrote(2, "{}"),
        ),
        [("read", "a", '{"n":1}'), ("read", "b", "{}")],
    ),
    "whole at the start": (
        (called(0, "read", "a", {"n": 1}), wrote(0, '{"n":1}'), called(0, "read", "b", {"n": 2})),
        [("read", "a", '{"n": 1}'), ("read", "b", '{"n": 2}')],
    ),
    "without an index or id": (
        (called(0, "read", "").replace('"index": 0, ', ""), wrote(None, "{}")),
        [("read", "", "{}")],
    ),
    "without arguments": ((called(0, "read", "a"),), [("read", "a", "")]),
    "values of other types": (
        (event("content_block_start", index=[], content_block={"type": "tool_use", "name": 7}), wrote([], 5)),
        [("7", "", "5")],
    ),
}


@pytest.mark.parametrize("name", CALLS)
async def test_calls_are_read_whatever_a_gateway_sends(
    provider: WireProvider, model: AnthropicModel, name: str
) -> None:
    events, expected = CALLS[name]
    provider.answer_events(started(), said("Let me see."), *events, stopped("tool_use"))

    pieces = await collect_pieces(model, build_request())

    assert join_text(pieces) == "Let me see."
    assert join_calls(pieces) == expected
    assert isinstance(pieces[-1], ReplyFinished)
    assert pieces[-1].reason == "stop"


async def test_the_request_carries_tools_calls_and_results(provider: WireProvider, model: AnthropicModel) -> None:
    provider.answer_events(started(), said("ok"), stopped())

    await collect_pieces(model, build_native_request())

    cached = {"cache_control": {"type": "ephemeral"}}
    body = provider.received[0].body
    assert body["tools"] == [
        {"name": "read", "description": "Runs read.", "input_schema": PARAMETERS},
        {"name": "write", "description": "Runs write.", "input_schema": PARAMETERS, **cached},
    ]
    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Both."},
                {"type": "text", "text": "At once."},
                {"type": "tool_use", "id": "call_1", "name": "read", "input": {"n": 1}},
                {"type": "tool_use", "id": "call_2", "name": "write", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "call_2", "content": "", **cached},
                {"type": "text", "text": "And now?"},
            ],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_3", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_3", "content": "three", **cached}]},
    ]
    assert not {"tool_choice", "output_config"} & set(body)
    assert str(body).count("cache_control") == 4
    check_body(MessageCreateParamsStreaming, body)


async def test_tools_are_not_cached_if_nothing_else_is(provider: WireProvider, model: AnthropicModel) -> None:
    provider.answer_events(started(), said("ok"), stopped())
    request = ModelRequest((PromptMessage("user", (TextPart("Hi"),)),), 9, build_native_request().tools)

    await collect_pieces(model, request)

    assert "cache_control" not in str(provider.received[0].body)


async def test_a_forced_tool_is_called_without_thinking(provider: WireProvider) -> None:
    provider.answer_events(started(), called(0, "read", "toolu_1"), wrote(0, '{"n": 1}'), stopped("tool_use"))
    client = AsyncAnthropic(api_key="test-key", base_url=provider.url, max_retries=0)
    model = AnthropicModel(client, TRAITS, adaptive_thinking=True)

    pieces = await collect_pieces(model, build_forced_request())
    await model.aclose()

    body = provider.received[0].body
    assert body["tool_choice"] == {"type": "tool", "name": "read", "disable_parallel_tool_use": True}
    assert "thinking" not in body
    assert join_calls(pieces) == [("read", "toolu_1", '{"n": 1}')]
    check_body(MessageCreateParamsStreaming, body)


async def test_a_reply_in_json_can_be_requested(provider: WireProvider, model: AnthropicModel) -> None:
    provider.answer_events(started(), said('{"n": 1}'), stopped())

    pieces = await collect_pieces(model, build_json_request())

    body = provider.received[0].body
    schema = {**PARAMETERS, "additionalProperties": False}
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    assert join_text(pieces) == '{"n": 1}'
    check_body(MessageCreateParamsStreaming, body)


@pytest.mark.parametrize(
    "schema", [None, {"type": "object", "properties": {"n": {}}}, {"type": "object", "properties": 1}]
)
async def test_a_form_that_the_api_does_not_have_is_a_bad_request(
    provider: WireProvider, model: AnthropicModel, schema: dict[str, Any] | None
) -> None:
    with pytest.raises(ModelFailed) as failed:
        await collect_pieces(model, build_json_request(schema))

    assert (failed.value.kind, failed.value.retryable) == ("bad_request", False)
    assert provider.received == []
