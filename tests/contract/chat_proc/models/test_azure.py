"""Deployments of Azure OpenAI on the wire, with what Azure adds to the format of Chat Completions."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from helpers.provider import WireProvider, check_body
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from chat_proc.models.azure import build_model
from chat_proc.models.cards import ModelCard, ModelCards
from chat_proc.models.openai import OpenAIModel
from chat_proc.models.roles import ModelChoice
from everturn.models.port import ModelFailed, ReplyFinished, TextDelta
from everturn_testing.models.model_contract import (
    LanguageModelContract,
    build_native_request,
    build_request,
    collect_pieces,
    join_text,
)

CHOICE = ModelChoice("azure", "my-deployment", "test")
_CLEAN = {"hate": {"filtered": False, "severity": "safe"}}


def chunk(choices: list[dict[str, Any]], **more: Any) -> str:
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x", "choices": choices, **more}
    return f"data: {json.dumps(body)}\n\n"


def said(text: str, finish: str | None = None) -> str:
    delta = {"content": text} if text else {}
    return chunk([{"index": 0, "delta": delta, "finish_reason": finish, "content_filter_results": _CLEAN}])


FILTERED_PROMPT = chunk(
    [], id="", model="", prompt_filter_results=[{"prompt_index": 0, "content_filter_results": _CLEAN}]
)
OFFSETS = chunk([{"index": 0, "finish_reason": None, "content_filter_offsets": {"check_offset": 44}}])
COUNTED = chunk([], usage={"prompt_tokens": 1_000, "completion_tokens": 5, "total_tokens": 1_005})
DONE = "data: [DONE]\n\n"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, provider: WireProvider) -> None:
    monkeypatch.delenv("AZURE_OPENAI_AD_TOKEN", raising=False)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-key")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", provider.url)
    monkeypatch.setenv("OPENAI_API_VERSION", "2025-04-01-preview")
    monkeypatch.setenv("OPENAI_API_KEY", "openai-key")


@pytest.fixture
async def model() -> AsyncIterator[OpenAIModel]:
    adapter = build_model(CHOICE, ModelCards())
    yield adapter
    await adapter.aclose()


class TestContract(LanguageModelContract):
    @pytest.fixture
    async def model(self, provider: WireProvider) -> AsyncIterator[OpenAIModel]:
        provider.answer_events(FILTERED_PROMPT, said("Hel"), said("lo"), said("", "stop"), COUNTED, DONE)
        adapter = build_model(CHOICE, ModelCards())
        yield adapter
        await adapter.aclose()


async def test_a_deployment_is_called_by_its_name_with_azures_key(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_events(FILTERED_PROMPT, said("Hel"), OFFSETS, said("lo"), said("", "stop"), OFFSETS, COUNTED, DONE)

    pieces = await collect_pieces(model, build_native_request())

    sent = provider.received[0]
    assert sent.path == "/openai/deployments/my-deployment/chat/completions?api-version=2025-04-01-preview"
    assert (sent.headers["api-key"], sent.headers["accept-encoding"]) == ("azure-key", "identity")
    assert "openai-key" not in str(sent.headers)
    assert (sent.body["model"], sent.body["max_completion_tokens"]) == ("my-deployment", 99)
    check_body(CompletionCreateParamsStreaming, sent.body)
    assert pieces[:-1] == [TextDelta("Hel"), TextDelta("lo")]
    assert isinstance(pieces[-1], ReplyFinished)
    assert (pieces[-1].reason, pieces[-1].response_model, pieces[-1].usage.input_tokens) == ("stop", "gpt-x", 1_000)


async def test_a_token_of_entra_id_is_sent_instead_of_the_key(
    provider: WireProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "entra-token")
    provider.answer_events(said("ok", "stop"), DONE)
    model = build_model(CHOICE, ModelCards())

    await collect_pieces(model, build_request())
    await model.aclose()

    headers = provider.received[0].headers
    assert headers["authorization"] == "Bearer entra-token"
    assert "azure-key" not in str(headers)


async def test_a_filtered_reply_says_so(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_events(FILTERED_PROMPT, said("half"), said("", "content_filter"), COUNTED, DONE)

    pieces = await collect_pieces(model, build_request())

    assert join_text(pieces) == "half"
    assert isinstance(pieces[-1], ReplyFinished)
    assert pieces[-1].reason == "content_filter"


async def test_a_filtered_prompt_ends_as_a_filtered_reply(provider: WireProvider, model: OpenAIModel) -> None:
    inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"violence": {"filtered": True}}}
    error = {"message": "The response was filtered.", "type": None, "param": "prompt", "code": "content_filter"}
    provider.answer_error(400, {"error": {**error, "status": 400, "innererror": inner}})

    [finish] = await collect_pieces(model, build_request())

    assert isinstance(finish, ReplyFinished)
    assert (finish.reason, finish.usage.estimated, finish.usage.output_tokens) == ("content_filter", True, 0)
    assert finish.usage.input_tokens > 0 and len(provider.received) == 1


@pytest.mark.parametrize(
    ("status", "error", "kind", "retryable"),
    [
        (400, {"code": "unsupported_value", "message": "no such value", "status": 400}, "bad_request", False),
        (401, {"code": "401", "message": "Access denied due to invalid subscription key"}, "unauthorized", False),
        (404, {"code": "DeploymentNotFound", "message": "no such deployment"}, "not_found", False),
        (429, {"code": "429", "message": "Requests have exceeded call rate limit"}, "rate_limited", True),
    ],
)
async def test_errors_of_azure_say_whether_to_try_again(
    provider: WireProvider, model: OpenAIModel, status: int, error: dict[str, Any], kind: str, retryable: bool
) -> None:
    provider.answer_error(status, {"error": error}, retry_after="3")

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert (raised.value.kind, raised.value.retryable, raised.value.retry_after_s) == (kind, retryable, 3.0)
    assert len(provider.received) == 1


def test_the_ledger_and_the_cards_name_the_deployment_with_its_cloud(provider: WireProvider) -> None:
    cards = ModelCards({"azure:my-*": ModelCard(context_tokens=50_000, images=True)})

    traits = build_model(CHOICE, cards).traits

    assert (traits.ledger_name, traits.provider) == ("azure:my-deployment", "azure.ai.openai")
    assert (traits.context_tokens, traits.images, traits.documents) == (50_000, True, False)
    assert provider.url.endswith(f"{traits.server_address}:{provider.url.rpartition(':')[2]}")
