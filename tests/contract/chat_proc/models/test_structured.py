"""Structured calls on the wire, in the formats of both providers, from the forced call down to plain text."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from helpers.provider import Answer, WireProvider, build_openai_events, check_body
from openai import AsyncOpenAI
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from chat_proc.models.anthropic import AnthropicModel
from chat_proc.models.calls import CallTracker
from chat_proc.models.openai import OpenAIModel
from chat_proc.models.structured import StructuredResult, structured_call
from everturn.models.port import Ability, LanguageModel, ModelTraits, Price, PromptMessage, TextPart

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
MESSAGES = (PromptMessage("system", (TextPart("Count."),)), PromptMessage("user", (TextPart("How many?"),)))
ABILITIES: frozenset[Ability] = frozenset({"tool_call", "json_schema"})
PRICE = Price(input=1.0, output=2.0)


def build_traits(provider: str) -> ModelTraits:
    return ModelTraits("m", 100_000, False, False, provider=provider, abilities=ABILITIES, price=PRICE)


@pytest.fixture
async def openai(provider: WireProvider) -> AsyncIterator[OpenAIModel]:
    client = AsyncOpenAI(api_key="test-key", base_url=f"{provider.url}/v1", max_retries=0)
    model = OpenAIModel(client, build_traits("openai"))
    yield model
    await model.aclose()


@pytest.fixture
async def anthropic(provider: WireProvider) -> AsyncIterator[AnthropicModel]:
    client = AsyncAnthropic(api_key="test-key", base_url=provider.url, max_retries=0)
    model = AnthropicModel(client, build_traits("anthropic"), adaptive_thinking=True)
    yield model
    await model.aclose()


def openai_call(arguments: str) -> Answer:
    call = {"index": 0, "id": "call_1", "function": {"name": "submit_reply", "arguments": arguments}}
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return Answer([f"data: {json.dumps(chunk)}\n\n".encode(), *map(str.encode, build_openai_events("")[1:])])


def openai_text(text: str) -> Answer:
    return Answer([event.encode() for event in build_openai_events(text)])


def anthropic_reply(block: Mapping[str, Any], delta: Mapping[str, Any]) -> Answer:
    usage = {"input_tokens": 1_000, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    return Answer([f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events])


def anthropic_call(arguments: str) -> Answer:
    block = {"type": "tool_use", "id": "toolu_1", "name": "submit_reply", "input": {}}
    return anthropic_reply(block, {"type": "input_json_delta", "partial_json": arguments})


def anthropic_text(text: str) -> Answer:
    return anthropic_reply({"type": "text", "text": ""}, {"type": "text_delta", "text": text})


def rejected(message: str) -> Answer:
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    return Answer([json.dumps(body).encode()], status=400)


async def ask(model: LanguageModel) -> StructuredResult[int]:
    tracker = CallTracker(model.traits, "summary")
    return await structured_call(model, MESSAGES, SCHEMA, parse_fn=lambda raw: int(raw["n"]), tracker=tracker)


async def test_openai_is_forced_to_call_a_tool(provider: WireProvider, openai: OpenAIModel) -> None:
    provider.answer(openai_call('{"n": 7}'))

    result = await ask(openai)

    assert (result.value, result.level, result.calls) == (7, "native", 1)
    assert result.usage.cost_usd == pytest.approx((1_000 + 2 * 5) / 1e6)
    (request,) = provider.received
    assert request.body["tools"][0]["function"]["parameters"] == SCHEMA
    assert request.body["tool_choice"] == {"type": "function", "function": {"name": "submit_reply"}}
    check_body(CompletionCreateParamsStreaming, request.body)


async def test_openai_is_asked_in_simpler_forms_down_to_plain_text(provider: WireProvider, openai: OpenAIModel) -> None:
    provider.answer(
        rejected("tool_choice is not supported"),
        openai_text('{"n": "x"}'),
        openai_text("seven"),
        openai_text("seven"),
        openai_text('So: {"n": 7}'),
    )

    result = await ask(openai)

    assert (result.value, result.level, result.calls) == (7, "plain", 5)
    assert result.usage.cost_usd == pytest.approx(4 * (1_000 + 2 * 5) / 1e6)
    bodies = [request.body for request in provider.received]
    assert [body.get("response_format", {}).get("type") for body in bodies] == [None, *["json_schema"] * 2, None, None]
    assert [len(body["messages"]) for body in bodies] == [2, 2, 4, 2, 4]
    assert bodies[2]["messages"][2] == {"role": "assistant", "content": '{"n": "x"}'}
    for body in bodies:
        check_body(CompletionCreateParamsStreaming, body)


async def test_a_server_without_tools_is_asked_in_another_form(provider: WireProvider, openai: OpenAIModel) -> None:
    error = {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}
    provider.answer(Answer([json.dumps({"error": error}).encode()], status=500), openai_text('{"n": 7}'))

    result = await ask(openai)

    assert (result.value, result.level, result.calls) == (7, "json", 2)


async def test_anthropic_is_forced_to_call_a_tool(provider: WireProvider, anthropic: AnthropicModel) -> None:
    provider.answer(anthropic_call('{"n": 7}'))

    result = await ask(anthropic)

    assert (result.value, result.level, result.calls) == (7, "native", 1)
    (request,) = provider.received
    assert request.body["tools"][0]["input_schema"] == SCHEMA
    assert request.body["tool_choice"]["name"] == "submit_reply"
    check_body(MessageCreateParamsStreaming, request.body)


async def test_anthropic_is_asked_in_simpler_forms_down_to_plain_text(
    provider: WireProvider, anthropic: AnthropicModel
) -> None:
    provider.answer(
        anthropic_call('{"n": "x"}'),
        rejected("output_config: not supported"),
        anthropic_text(""),
        anthropic_text('{"n": 7}'),
    )

    result = await ask(anthropic)

    assert (result.value, result.level, result.calls) == (7, "plain", 4)
    bodies = [request.body for request in provider.received]
    assert ["output_config" in body for body in bodies] == [False, True, False, False]
    assert ["thinking" in body for body in bodies] == [False, True, True, True]
    assert bodies[1]["messages"][1] == {"role": "assistant", "content": [{"type": "text", "text": '{"n": "x"}'}]}
    assert bodies[3]["messages"][1] == {"role": "assistant", "content": [{"type": "text", "text": "(empty)"}]}
    for body in bodies:
        check_body(MessageCreateParamsStreaming, body)
