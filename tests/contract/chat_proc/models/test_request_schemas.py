"""The requests of all adapters contain nothing that the SDKs' types of a request do not allow."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from anthropic import AsyncAnthropic, AsyncAnthropicBedrock, AsyncAnthropicVertex
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from helpers.provider import WireProvider, check_body
from openai import AsyncAzureOpenAI, AsyncOpenAI
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from chat_proc.models.anthropic import AnthropicModel
from chat_proc.models.openai import OpenAIModel
from chat_proc.models.openai_responses import ResponsesModel
from everturn.models.port import (
    IMAGE_MIMES,
    PDF_MIME,
    LanguageModel,
    MediaPart,
    ModelFailed,
    ModelRequest,
    ModelTraits,
    PromptMessage,
    TextPart,
    encode_media,
)
from everturn_testing.models.model_contract import (
    build_forced_request,
    build_json_request,
    build_native_request,
    build_request,
    collect_pieces,
)

pytestmark = pytest.mark.sampled
TRAITS = ModelTraits("m", 100_000, images=True, documents=True, abilities=frozenset({"reasoning"}))
_MEDIA = tuple(MediaPart(mime, encode_media(b"content"), "a file") for mime in sorted(IMAGE_MIMES | {PDF_MIME}))
REQUESTS = {
    "text": build_request(),
    "text of an assistant": ModelRequest(
        (
            PromptMessage("user", (TextPart("Hello."), TextPart("", cache_point=True))),
            PromptMessage("assistant", (TextPart("Hi."), TextPart("What now?", cache_point=True))),
            PromptMessage("user", (TextPart("Nothing."),)),
        ),
        512,
    ),
    "pictures and documents": ModelRequest((PromptMessage("user", (TextPart("Look:"), *_MEDIA)),), 512),
    "tools and results": build_native_request(),
    "a forced call": build_forced_request(),
    "a reply in JSON": build_json_request(),
}
ADAPTERS = ("openai", "openai-responses", "azure", "anthropic", "bedrock", "vertex")


@pytest.fixture(params=ADAPTERS)
async def adapter(request: pytest.FixtureRequest, provider: WireProvider) -> AsyncIterator[tuple[LanguageModel, Any]]:
    """A model that rejects every request, and the SDK's type of its requests."""
    provider.answer_error(400, {"error": {"message": "enough"}})
    openai = AsyncOpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=0)
    azure = AsyncAzureOpenAI(api_key="k", azure_endpoint=provider.url, api_version="v", max_retries=0)
    anthropic = AsyncAnthropic(api_key="k", base_url=provider.url, max_retries=0)
    bedrock = AsyncAnthropicBedrock(api_key="k", aws_region="r", base_url=provider.url, max_retries=0)
    vertex = AsyncAnthropicVertex(access_token="k", project_id="p", region="r", base_url=provider.url, max_retries=0)
    async with openai, azure, anthropic, bedrock, vertex:
        match request.param:
            case "openai":
                yield OpenAIModel(openai, TRAITS), CompletionCreateParamsStreaming
            case "openai-responses":
                yield ResponsesModel(openai, TRAITS), ResponseCreateParamsStreaming
            case "azure":
                yield OpenAIModel(azure, TRAITS), CompletionCreateParamsStreaming
            case name:
                client = {"anthropic": anthropic, "bedrock": bedrock, "vertex": vertex}[name]
                yield AnthropicModel(client, TRAITS, adaptive_thinking=True), MessageCreateParamsStreaming


async def send(model: LanguageModel, request: ModelRequest, provider: WireProvider) -> dict[str, Any]:
    """The request as it arrived, with the parameters that the SDK moves to the address for a cloud."""
    with pytest.raises(ModelFailed, match="rejected the request"):
        await collect_pieces(model, request)
    body = provider.received[0].body
    if body.pop("anthropic_version", None):
        body |= {"model": "m", "stream": True}
    return body


@pytest.mark.parametrize("name", REQUESTS)
async def test_each_request_is_allowed_by_the_sdks_types(
    provider: WireProvider, adapter: tuple[LanguageModel, Any], name: str
) -> None:
    model, params = adapter

    check_body(params, await send(model, REQUESTS[name], provider))


@pytest.mark.parametrize("name", ["text", "tools and results", "a forced call", "a reply in JSON"])
async def test_a_key_that_no_type_allows_is_found_at_every_depth(
    provider: WireProvider, adapter: tuple[LanguageModel, Any], name: str
) -> None:
    model, params = adapter
    body = await send(model, REQUESTS[name], provider)

    for place in _list_objects(body):
        place["of_nowhere"] = 1
        with pytest.raises(ValueError):
            check_body(params, body)
        del place["of_nowhere"]


def _list_objects(value: Any) -> list[dict[str, Any]]:
    """All JSON objects but those with keys of their own: arguments of calls and schemas."""
    if isinstance(value, list):
        return [found for item in value for found in _list_objects(item)]
    if not isinstance(value, dict):
        return []
    inner = [item for key, item in value.items() if key not in ("input_schema", "parameters", "schema")]
    if value.get("type") == "tool_use":
        inner.remove(value["input"])
    return [value, *(found for item in inner for found in _list_objects(item))]
