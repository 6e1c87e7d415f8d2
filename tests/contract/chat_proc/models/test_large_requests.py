"""Requests with large files, which every round of a turn sends again, leave the event loop to other turns."""

import asyncio
import json
import os
import time
from base64 import b64encode
from collections.abc import Callable
from typing import cast

import httpx2
import pytest
from anthropic import AsyncAnthropic, AsyncAnthropicBedrock
from helpers.event_loop import watch_loop
from openai import AsyncAzureOpenAI, AsyncOpenAI

from chat_proc.models.anthropic import AnthropicModel
from chat_proc.models.bounded_http import build_event_hooks
from chat_proc.models.openai import OpenAIModel
from chat_proc.models.openai_responses import ResponsesModel
from everturn.core.http_bodies import MAX_SENT_BYTES
from everturn.models.port import (
    LanguageModel,
    MediaPart,
    ModelFailed,
    ModelRequest,
    ModelTraits,
    PromptMessage,
    TextPart,
    encode_media,
)
from everturn_testing.models.model_contract import collect_pieces

TRAITS = ModelTraits("m", 1_000_000, images=True, documents=True)
FILES = [os.urandom(8 * 2**20) for _ in range(2)]


class Reader(httpx2.AsyncBaseTransport):
    """Reads a request as a socket sends it, and rejects it."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        async for piece in cast(httpx2.AsyncByteStream, request.stream):
            self.pieces.append(piece)
            await asyncio.sleep(0)
        return httpx2.Response(400, json={"error": {"message": "enough"}})


def build_openai(http: httpx2.AsyncClient) -> LanguageModel:
    return OpenAIModel(AsyncOpenAI(api_key="k", base_url="http://m.test/v1", max_retries=0, http_client=http), TRAITS)


def build_azure(http: httpx2.AsyncClient) -> LanguageModel:
    client = AsyncAzureOpenAI(
        api_key="k", azure_endpoint="http://m.test", api_version="v", max_retries=0, http_client=http
    )
    return OpenAIModel(client, TRAITS)


def build_responses(http: httpx2.AsyncClient) -> LanguageModel:
    client = AsyncOpenAI(api_key="k", base_url="http://m.test/v1", max_retries=0, http_client=http)
    return ResponsesModel(client, TRAITS)


def build_anthropic(http: httpx2.AsyncClient) -> LanguageModel:
    client = AsyncAnthropic(api_key="k", base_url="http://m.test", max_retries=0, http_client=http)
    return AnthropicModel(client, TRAITS)


def build_bedrock(http: httpx2.AsyncClient) -> LanguageModel:
    """It signs the whole body."""
    client = AsyncAnthropicBedrock(
        aws_access_key="a", aws_secret_key="s", aws_region="eu-west-1", max_retries=0, http_client=http
    )
    return AnthropicModel(client, TRAITS)


def do_it_at_once(files: list[bytes]) -> float:
    """The seconds of the processor that it takes to write the files into JSON."""
    began_s = time.thread_time()
    for data in files:
        json.dumps(b64encode(data).decode())
    return time.thread_time() - began_s


@pytest.mark.parametrize("build", [build_openai, build_azure, build_responses, build_anthropic, build_bedrock])
async def test_a_request_with_large_files_never_holds_the_event_loop(
    build: Callable[[httpx2.AsyncClient], LanguageModel],
) -> None:
    transport = Reader()
    first, second = (MediaPart("application/pdf", encode_media(data), "a.pdf") for data in FILES)
    texts = [TextPart("What is new?"), *(TextPart(f'"{"ü" * 999}"\n') for _ in range(500))]
    request = ModelRequest((PromptMessage("user", (first, second, first, *texts)),), 512)
    work_s = min(map(do_it_at_once, [FILES] * 3))

    async with httpx2.AsyncClient(transport=transport, event_hooks=build_event_hooks()) as http:
        model = build(http)
        with pytest.raises(ModelFailed, match="rejected the request"):
            await collect_pieces(model, ModelRequest((PromptMessage("user", (TextPart("Hi."),)),), 512))
        transport.pieces.clear()
        async with watch_loop() as watch:
            with pytest.raises(ModelFailed, match="rejected the request"):
                await collect_pieces(model, request)

    assert watch.longest_s < work_s / 4
    assert max(map(len, transport.pieces)) <= MAX_SENT_BYTES
    body = b"".join(transport.pieces)
    assert [body.count(part.data.base64) for part in (first, second)] == [2, 1]
    strings = list(_list_strings(json.loads(body)))
    assert all(any(string.endswith(part.text) for string in strings) for part in texts)


def _list_strings(value: object) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [found for item in cast("dict[str, object]", value).values() for found in _list_strings(item)]
        case list():
            return [found for item in cast("list[object]", value) for found in _list_strings(item)]
        case _:
            return []
