"""Claude on Google Vertex AI on the wire: addresses, and tokens of a service account."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from helpers.provider import Answer, WireProvider, check_body, run_provider

from chat_proc.models.anthropic_clouds import CloudModel, build_vertex_model
from chat_proc.models.cards import ModelCards
from chat_proc.models.providers import BadModelSetting, choose_model
from chat_proc.models.roles import ModelChoice
from everturn.models.port import ModelFailed, ReplyFinished, TextDelta
from everturn_testing.models.model_contract import (
    LanguageModelContract,
    build_native_request,
    build_request,
    collect_pieces,
    join_text,
)

CHOICE = ModelChoice("vertex", "claude-haiku-4-5@20251001", "test")
VARIABLES = {"ANTHROPIC_VERTEX_PROJECT_ID": "my-project", "CLOUD_ML_REGION": "us-east5"}
_KEY = generate_private_key(public_exponent=65537, key_size=2048)


def event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"


def said(text: str) -> str:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


STARTED = event("vertex_event", usage=None) + event(
    "message_start",
    message={"id": "msg_vrtx_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    | {"usage": {"input_tokens": 1_000, "output_tokens": 1}},
)
STOPPED = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5}) + event("message_stop")


def build_token(text: str, lifetime_s: int = 3_600) -> Answer:
    body = {"access_token": text, "expires_in": lifetime_s, "token_type": "Bearer"}
    return Answer([json.dumps(body).encode()], headers={"content-type": "application/json"})


@pytest.fixture
async def tokens() -> AsyncIterator[WireProvider]:
    """The service that gives tokens to a service account."""
    async with run_provider(WireProvider()) as wire:
        yield wire


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, provider: WireProvider, tokens: WireProvider, tmp_path: Path) -> None:
    account = {
        "type": "service_account",
        "project_id": "another-project",
        "private_key_id": "1",
        "private_key": _KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "client_email": "everturn@another-project.test",
        "token_uri": f"{tokens.url}/token",
    }
    (tmp_path / "account.json").write_text(json.dumps(account))
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("ANTHROPIC_VERTEX_BASE_URL", f"{provider.url}/v1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "anthropic-key")
    monkeypatch.delenv("ANTHROPIC_CUSTOM_HEADERS", raising=False)


@pytest.fixture
async def model() -> AsyncIterator[CloudModel]:
    adapter = build_vertex_model(CHOICE, ModelCards())
    yield adapter
    await adapter.aclose()


class TestContract(LanguageModelContract):
    @pytest.fixture
    async def model(self, provider: WireProvider, tokens: WireProvider) -> AsyncIterator[CloudModel]:
        tokens.answer(build_token("google-token"))
        provider.answer_events(STARTED, said("Hel"), event("ping"), said("lo"), STOPPED)
        adapter = build_vertex_model(CHOICE, ModelCards())
        yield adapter
        await adapter.aclose()


async def test_a_model_is_called_by_its_address_with_a_token_of_the_account(
    provider: WireProvider, tokens: WireProvider, model: CloudModel
) -> None:
    tokens.answer(build_token("google-token"))
    provider.answer_events(STARTED, said("Hel"), event("ping"), said("lo"), STOPPED)

    pieces = await collect_pieces(model, build_native_request())
    await collect_pieces(model, build_request())

    sent = provider.received[0]
    assert sent.path == (
        "/v1/projects/my-project/locations/us-east5/publishers/anthropic/models/"
        "claude-haiku-4-5@20251001:streamRawPredict"
    )
    assert (sent.headers["authorization"], sent.headers["accept-encoding"]) == ("Bearer google-token", "identity")
    assert "anthropic-key" not in str(sent.headers)
    assert sent.body.pop("anthropic_version")
    assert "model" not in sent.body
    check_body(MessageCreateParamsStreaming, {**sent.body, "model": "m"})
    assert len(tokens.received) == 1
    assert pieces[:-1] == [TextDelta("Hel"), TextDelta("lo")]
    assert isinstance(pieces[-1], ReplyFinished)
    assert pieces[-1].usage.cost_usd == pytest.approx((1_000 + 5 * 5) / 1e6)


async def test_an_expired_token_is_renewed(provider: WireProvider, tokens: WireProvider, model: CloudModel) -> None:
    tokens.answer(build_token("old", lifetime_s=1), build_token("new"))
    provider.answer_events(STARTED, said("ok"), STOPPED)

    for _ in range(2):
        assert join_text(await collect_pieces(model, build_request())) == "ok"

    assert provider.received[-1].headers["authorization"] == "Bearer new"


async def test_an_account_that_gets_no_token_fails_the_call(
    provider: WireProvider, tokens: WireProvider, model: CloudModel
) -> None:
    tokens.answer_error(400, {"error": "invalid_grant", "error_description": "account disabled"})

    with pytest.raises(ModelFailed, match="credentials for the provider") as raised:
        await collect_pieces(model, build_request())

    assert (raised.value.kind, raised.value.likely_permanent) == ("unauthorized", True)
    assert "account disabled" in raised.value.provider_text
    assert not provider.received


@pytest.mark.parametrize(
    ("status", "name", "kind", "retryable"),
    [
        (403, "PERMISSION_DENIED", "unauthorized", False),
        (404, "NOT_FOUND", "not_found", False),
        (429, "RESOURCE_EXHAUSTED", "rate_limited", True),
        (503, "UNAVAILABLE", "overloaded", True),
    ],
)
async def test_errors_of_google_say_whether_to_try_again(
    provider: WireProvider,
    tokens: WireProvider,
    model: CloudModel,
    status: int,
    name: str,
    kind: str,
    retryable: bool,
) -> None:
    tokens.answer(build_token("google-token"))
    provider.answer_error(status, {"error": {"code": status, "message": "not now", "status": name}})

    with pytest.raises(ModelFailed, match=rf"\({status}\)\.$") as raised:
        await collect_pieces(model, build_request())

    assert (raised.value.kind, raised.value.retryable) == (kind, retryable)
    assert "not now" in raised.value.provider_text
    assert len(provider.received) == 1


def test_a_model_without_credentials_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"EVERTURN_MODEL": "vertex:claude-haiku-4-5", **VARIABLES}
    assert choose_model(environment).name == "claude-haiku-4-5"

    for missing in VARIABLES:
        with pytest.raises(BadModelSetting, match=f"names a model of vertex, but {missing} is not set"):
            choose_model({name: value for name, value in environment.items() if name != missing})
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    with pytest.raises(BadModelSetting, match=r"its credentials were not found\. Set GOOGLE_APPLICATION_CREDENTIALS"):
        choose_model(environment)


def test_the_ledger_names_the_cloud_and_the_card_is_that_of_the_model(model: CloudModel) -> None:
    assert (model.traits.ledger_name, model.traits.provider) == ("vertex:claude-haiku-4-5@20251001", "gcp.vertex_ai")
    assert (model.traits.context_tokens, model.traits.documents) == (200_000, True)
