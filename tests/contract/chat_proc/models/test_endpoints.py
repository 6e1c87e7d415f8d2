"""Models of the operator's endpoints on the wire: what the configuration file says reaches the right server with the
right key."""

import json
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from helpers.provider import Answer, WireProvider, build_openai_events, run_provider

from chat_proc.agent.compaction import SummaryWriter
from chat_proc.model_choice import choose_models
from chat_proc.models.roles import ModelRoles
from chat_proc.models.structured import StructuredLimits
from chat_proc.settings import OperatorConfig, WorkerSettings
from chat_proc.timeline.compaction.cut import ContextLimits, Snapshot, choose_history
from chat_proc.turn.titling import TitleCall
from everturn.core.failpoints import Failpoints
from everturn.models.port import (
    MediaPart,
    ModelFailed,
    ModelRequest,
    PromptMessage,
    ReplyFinished,
    TextPart,
    encode_media,
)
from everturn.models.tokens import CharsPerToken
from everturn_testing.long_conversations import play_conversation
from everturn_testing.models.model_contract import build_request, collect_pieces, join_text

KEYS = {"LOCAL_API_KEY": "local-secret", "GATEWAY_TOKEN": "gateway-secret"}
CUSTOM = "Authorization: Bearer official-header\nX-Api-Key: official-header\nUser-Agent: official\nHost: official"
OFFICIAL = {
    "OPENAI_API_KEY": "official-openai-key",
    "OPENAI_ADMIN_KEY": "official-admin-key",
    "OPENAI_ORG_ID": "official-organization",
    "OPENAI_PROJECT_ID": "official-project",
    "OPENAI_BASE_URL": "http://official.test/v1",
    "OPENAI_CUSTOM_HEADERS": CUSTOM,
    "ANTHROPIC_API_KEY": "official-anthropic-key",
    "ANTHROPIC_AUTH_TOKEN": "official-anthropic-token",
    "ANTHROPIC_BASE_URL": "http://official.test",
    "ANTHROPIC_CUSTOM_HEADERS": CUSTOM,
}
"""What the SDKs read for their providers; an endpoint gets none of it."""
PRICE = {"input": 1.0, "output": 2.0}
PICTURE = ModelRequest(
    (PromptMessage("user", (MediaPart("image/png", encode_media(b"PNG"), "a.png"), TextPart("Look"))),), 9_000
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**KEYS, **OFFICIAL}.items():
        monkeypatch.setenv(name, value)


async def choose(models: Mapping[str, Any], **more: str) -> ModelRoles:
    settings = WorkerSettings(
        database_url="postgresql://w@h/n", redis_url="redis://h/0", objects_url="file:///none", **more
    )
    return await choose_models(settings, OperatorConfig.model_validate({"models": models}))


def build_anthropic_events(text: str) -> tuple[str, ...]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    events: tuple[dict[str, Any], ...] = (
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": 1_000, "output_tokens": 1}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    )
    return tuple(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def build_responses_events(text: str) -> tuple[str, ...]:
    usage = {"input_tokens": 1_000, "output_tokens": 5, "total_tokens": 1_005}
    events: tuple[dict[str, Any], ...] = (
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text},
        {"type": "response.completed", "response": {"id": "resp_1", "model": "m", "usage": usage}},
    )
    return tuple(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def check_headers(provider: WireProvider, key: str | None) -> None:
    """Everything that was received has this key and nothing of OFFICIAL."""
    for received in (*provider.received, *provider.read):
        assert received.headers.get("authorization") == (key and f"Bearer {key}")
        assert received.headers["host"] == provider.url.removeprefix("http://")
        assert "official" not in str(received.headers)


async def test_a_model_of_an_openai_endpoint_is_called_with_its_key_card_and_price(provider: WireProvider) -> None:
    provider.answer_events(*build_openai_events("seen"))
    endpoint = {"protocol": "openai", "base_url": f"{provider.url}/v1", "key_env": "LOCAL_API_KEY"}
    card = {"images": True, "max_output_tokens": 500, "price": PRICE}
    models = await choose({"endpoints": {"local": endpoint}, "cards": {"qwen*": card}}, model="local:qwen3-vl:8b")

    pieces = await collect_pieces(models.model("decision"), PICTURE)

    sent = provider.received[0]
    assert (sent.path, sent.body["model"], sent.body["max_tokens"]) == ("/v1/chat/completions", "qwen3-vl:8b", 500)
    assert sent.body["messages"][0]["content"][0]["type"] == "image_url"
    check_headers(provider, "local-secret")
    finish = pieces[-1]
    assert join_text(pieces) == "seen"
    assert isinstance(finish, ReplyFinished)
    assert (finish.usage.cost_usd, finish.usage.cost_known) == (pytest.approx((1_000 + 5 * 2) / 1e6), True)
    assert models.model("decision").traits.images


async def test_an_endpoint_can_speak_the_responses_api(provider: WireProvider) -> None:
    provider.answer_page("/v1/models", {"data": [{"id": "mine", "max_model_len": 8_192}]})
    provider.answer_events(*build_responses_events("seen"))
    endpoint = {"protocol": "openai-responses", "base_url": f"{provider.url}/v1", "key_env": "LOCAL_API_KEY"}
    card = {"images": True, "max_output_tokens": 500, "price": PRICE}
    models = await choose({"endpoints": {"local": endpoint}, "cards": {"local:*": card}}, model="local:mine")

    pieces = await collect_pieces(models.model("decision"), PICTURE)

    sent = provider.received[0]
    assert (sent.path, sent.body["model"], sent.body["max_output_tokens"]) == ("/v1/responses", "mine", 500)
    assert sent.body["input"][0]["content"][0]["type"] == "input_image"
    check_headers(provider, "local-secret")
    finish = pieces[-1]
    assert isinstance(finish, ReplyFinished)
    assert (finish.usage.cost_usd, finish.usage.cost_known) == (pytest.approx((1_000 + 5 * 2) / 1e6), True)
    assert models.model("decision").traits.context_tokens == 8_192


async def test_a_model_of_an_anthropic_endpoint_is_called_with_its_key_card_and_price(provider: WireProvider) -> None:
    provider.answer_events(*build_anthropic_events("seen"))
    endpoint = {"protocol": "anthropic", "base_url": provider.url, "key_env": "GATEWAY_TOKEN"}
    card = {"images": True, "max_output_tokens": 500, "price": PRICE, "adaptive_thinking": True}
    models = await choose({"endpoints": {"gateway": endpoint}, "cards": {"gateway:*": card}}, model="gateway:mine")

    pieces = await collect_pieces(models.model("decision"), PICTURE)

    sent = provider.received[0]
    assert (sent.path, sent.body["model"], sent.body["max_tokens"]) == ("/v1/messages", "mine", 500)
    assert sent.body["messages"][0]["content"][0]["type"] == "image"
    assert sent.body["thinking"]["type"] == "adaptive"
    check_headers(provider, "gateway-secret")
    finish = pieces[-1]
    assert join_text(pieces) == "seen"
    assert isinstance(finish, ReplyFinished)
    assert (finish.usage.cost_usd, finish.usage.cost_known) == (pytest.approx((1_000 + 5 * 2) / 1e6), True)


@pytest.mark.parametrize(
    ("protocol", "events"),
    [
        ("openai", build_openai_events("hi")),
        ("openai-responses", build_responses_events("hi")),
        ("anthropic", build_anthropic_events("hi")),
    ],
)
async def test_an_endpoint_without_a_key_gets_none(
    provider: WireProvider, protocol: str, events: tuple[str, ...]
) -> None:
    provider.answer_events(*events)
    endpoint = {"protocol": protocol, "base_url": provider.url}
    models = await choose({"endpoints": {"local": endpoint}}, model="local:mine")

    pieces = await collect_pieces(models.model("decision"), build_request())

    assert join_text(pieces) == "hi"
    check_headers(provider, None)
    assert not models.model("decision").traits.images


@pytest.mark.parametrize(("protocol", "path"), [("openai", "/v1"), ("openai-responses", "/v1"), ("anthropic", "")])
async def test_a_redirect_is_not_followed_but_named_to_the_operator(
    provider: WireProvider, protocol: str, path: str
) -> None:
    async with run_provider(WireProvider()) as other:
        location = other.url.replace("://", "://user:secret@") + "/v1/x?key=secret"
        moved = Answer([], status=307, headers={"location": location})
        provider.answer(moved)
        provider.pages["/v1/models"] = moved
        endpoint = {"protocol": protocol, "base_url": provider.url + path, "key_env": "LOCAL_API_KEY"}
        models = await choose({"endpoints": {"local": endpoint}}, model="local:mine")

        with pytest.raises(ModelFailed, match="must be set as its base URL") as raised:
            await collect_pieces(models.model("decision"), build_request())

        assert (raised.value.retryable, raised.value.kind) == (False, "invalid_reply")
        assert raised.value.provider_text == f"redirects to {other.url}/v1/x"
        assert (len(provider.received), len(provider.read)) == (1, 1)
        assert not (other.received or other.read)


async def test_an_endpoint_that_sends_nothing_is_given_up_after_its_own_time(provider: WireProvider) -> None:
    provider.answer_events(hang=True)
    endpoint = {"protocol": "openai", "base_url": f"{provider.url}/v1", "first_token_timeout_s": 1}
    models = await choose({"endpoints": {"local": endpoint}}, model="local:m")

    with pytest.raises(ModelFailed, match=r"silent for 1 s\."):
        await collect_pieces(models.model("decision"), build_request())


@pytest.mark.parametrize("protocol", ["openai", "openai-responses", "anthropic"])
async def test_no_sdk_ends_a_long_silence_before_the_endpoints_limit(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits_s: list[float] = []

    async def refuse(_transport: httpx2.AsyncHTTPTransport, request: httpx2.Request) -> httpx2.Response:
        limits_s.append(request.extensions["timeout"]["read"])
        return httpx2.Response(400)

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", refuse)
    endpoint = {"protocol": protocol, "base_url": "http://model.test/v1", "first_token_timeout_s": 900}
    models = await choose({"endpoints": {"local": endpoint}}, model="local:m")

    with pytest.raises(ModelFailed):
        await collect_pieces(models.model("decision"), build_request())

    assert min(limits_s) >= 900


async def test_roles_and_the_fallback_can_use_different_endpoints(provider: WireProvider) -> None:
    async with run_provider(WireProvider()) as other:
        provider.answer_events(*build_openai_events("from the first"))
        other.answer_events(*build_anthropic_events("from the second"))
        endpoints = {
            "first": {"protocol": "openai", "base_url": f"{provider.url}/v1"},
            "second": {"protocol": "anthropic", "base_url": other.url},
        }
        models = await choose(
            {"endpoints": endpoints, "roles": {"title": "second:m"}}, model="first:m", fallback_model="second:n"
        )

        decided = await collect_pieces(models.model("decision"), build_request())
        titled = await collect_pieces(models.model("title"), build_request())

    assert (join_text(decided), join_text(titled)) == ("from the first", "from the second")
    assert models.fallback is not None
    assert models.fallback.traits.name == "n"


async def test_a_request_fits_the_context_that_the_server_states(provider: WireProvider) -> None:
    provider.answer_page("/v1/models", {"data": [{"id": "mine", "max_model_len": 8_192}]})
    provider.answer_events(*build_openai_events("hi"))
    endpoint = {"protocol": "openai", "base_url": f"{provider.url}/v1", "key_env": "LOCAL_API_KEY"}
    models = await choose({"endpoints": {"local": endpoint}}, model="local:mine")

    await collect_pieces(models.model("decision"), ModelRequest(build_request().messages, 8_192))

    assert provider.received[0].body["max_tokens"] == 4_096
    assert len(provider.read) == 1
    check_headers(provider, "local-secret")


async def test_the_ledger_names_the_endpoint_and_the_server_does_not_see_it(provider: WireProvider) -> None:
    provider.answer_events(*build_openai_events("Sales in March"))
    endpoint = {"protocol": "openai", "base_url": f"{provider.url}/v1"}
    models = await choose({"endpoints": {"local": endpoint}}, model="local:qwen3:8b")
    call = TitleCall(models.model("title"), build_request().messages)

    await call.run()

    (usage,) = call.build_usage()
    assert (usage.model, usage.input_tokens) == ("local:qwen3:8b", 1_000)
    assert provider.received[0].body["model"] == "qwen3:8b"


async def test_an_interrupted_title_call_is_priced_by_its_card(provider: WireProvider) -> None:
    provider.answer_events(*build_openai_events("Sales")[:1], hang=True)
    endpoint = {"protocol": "openai", "base_url": f"{provider.url}/v1"}
    models = await choose({"endpoints": {"local": endpoint}, "cards": {"mine": {"price": PRICE}}}, model="local:mine")
    call = TitleCall(models.model("title"), build_request().messages, limits=StructuredLimits(limit_s=0.2))

    await call.run()

    (usage,) = call.build_usage()
    assert (usage.estimated, usage.cost_known) == (True, True)
    assert usage.cost_usd == pytest.approx((usage.input_tokens + 2 * usage.output_tokens) / 1e6)


async def test_an_interrupted_summary_call_is_priced_by_its_card(provider: WireProvider) -> None:
    provider.answer_events(*build_openai_events("## Done")[:1], hang=True)
    endpoint = {"protocol": "openai", "base_url": f"{provider.url}/v1"}
    models = await choose({"endpoints": {"local": endpoint}, "cards": {"mine": {"price": PRICE}}}, model="local:mine")
    timeline = play_conversation(["turn", "turn"])
    blocks, limits = tuple(timeline.blocks), ContextLimits(8_000)
    snapshot = Snapshot(blocks, timeline.turn_id, timeline.round, "now", 400, limits, CharsPerToken())
    cut = choose_history(snapshot.blocks, snapshot.shown, snapshot.turn_id, excess_tokens=1_000_000)
    assert cut is not None
    writer = SummaryWriter(models.model("summary"), Failpoints(""), call_s=0.2)

    await writer.write(snapshot, cut)

    assert [(usage.estimated, usage.cost_known) for usage in writer.usage] == [(True, True)] * 2
    for usage in writer.usage:
        assert usage.cost_usd == pytest.approx((usage.input_tokens + 2 * usage.output_tokens) / 1e6)
