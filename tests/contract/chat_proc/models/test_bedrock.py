"""Claude on Amazon Bedrock on the wire: signed requests, and streams of binary frames."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from helpers.aws_frames import build_answer, encode_chunk, encode_exception, encode_frame
from helpers.provider import Answer, WireProvider, check_body

from chat_proc.models.anthropic_clouds import CloudModel, build_bedrock_model
from chat_proc.models.bounded_http import MAX_EVENT_BYTES
from chat_proc.models.cards import ModelCards
from chat_proc.models.providers import BadModelSetting, choose_model
from chat_proc.models.roles import ModelChoice
from everturn.models.port import ContextLimitExceeded, ModelFailed, ReasoningDelta, ReplyFinished, TextDelta
from everturn_testing.models.model_contract import (
    LanguageModelContract,
    build_native_request,
    build_request,
    collect_pieces,
    join_calls,
    join_text,
)

NAME = "us.anthropic.claude-haiku-4-5-20251001-v1:0"
CHOICE = ModelChoice("bedrock", NAME, "test")
_USAGE = {"input_tokens": 10, "cache_read_input_tokens": 1_000, "cache_creation_input_tokens": 200, "output_tokens": 1}
STARTED = encode_chunk(
    {
        "type": "message_start",
        "message": {"id": "msg_bdrk_1", "type": "message", "role": "assistant", "model": "m", "content": []}
        | {"usage": _USAGE},
    }
)
PING = encode_chunk({"type": "ping"})
STOPPED = encode_chunk(
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
) + encode_chunk({"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 10}})


def changed(kind: str, **delta: Any) -> bytes:
    return encode_chunk({"type": "content_block_delta", "index": 0, "delta": {"type": kind, **delta}})


def said(text: str) -> bytes:
    return changed("text_delta", text=text)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, provider: WireProvider, tmp_path: Path) -> None:
    for name in ("AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "AWS_SESSION_TOKEN", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-secret")
    # The SDK keeps sessions, and with them credentials, by region.
    monkeypatch.setenv("AWS_REGION", f"test-{tmp_path.name}")
    monkeypatch.setenv("ANTHROPIC_BEDROCK_BASE_URL", provider.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "anthropic-key")


@pytest.fixture
async def model() -> AsyncIterator[CloudModel]:
    adapter = build_bedrock_model(CHOICE, ModelCards())
    yield adapter
    await adapter.aclose()


class TestContract(LanguageModelContract):
    @pytest.fixture
    async def model(self, provider: WireProvider) -> AsyncIterator[CloudModel]:
        provider.answer(build_answer(STARTED, said("Hel"), PING, said("lo"), STOPPED))
        adapter = build_bedrock_model(CHOICE, ModelCards())
        yield adapter
        await adapter.aclose()


async def test_frames_become_pieces_and_the_usage_has_the_price_of_the_model(
    provider: WireProvider, model: CloudModel
) -> None:
    provider.answer(
        build_answer(
            STARTED, changed("thinking_delta", thinking="hm"), said("Hel"), PING, said("lo"),
            encode_chunk(
                {
                    "type": "content_block_start",
                    "index": 1,
                    "content_block": {"type": "tool_use", "id": "toolu_bdrk_1", "name": "read", "input": {}},
                }
            ),
            encode_chunk(
                {
                    "type": "content_block_delta",
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": '{"n":1}'},
                }
            ),
            STOPPED,
        )
    )  # fmt: skip

    pieces = await collect_pieces(model, build_request())

    assert pieces[:3] == [ReasoningDelta("hm"), TextDelta("Hel"), TextDelta("lo")]
    assert join_calls(pieces) == [("read", "toolu_bdrk_1", '{"n":1}')]
    finish = pieces[-1]
    assert isinstance(finish, ReplyFinished)
    assert (finish.reason, finish.response_id, finish.usage.input_tokens) == ("stop", "msg_bdrk_1", 1_210)
    assert finish.usage.cost_usd == pytest.approx((10 * 1 + 1_000 * 0.1 + 200 * 1.25 + 5 * 5) / 1e6)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 101, 102, 103])
async def test_the_network_may_cut_frames_anywhere(size: int, provider: WireProvider, model: CloudModel) -> None:
    stream = STARTED + said("Straße \U0001f600") + STOPPED
    provider.answer(build_answer(*(stream[at : at + size] for at in range(0, len(stream), size))))

    assert join_text(await collect_pieces(model, build_request())) == "Straße \U0001f600"


async def test_the_request_is_signed_and_names_the_model_in_its_path(provider: WireProvider, model: CloudModel) -> None:
    provider.answer(build_answer(STARTED, said("ok"), STOPPED))

    await collect_pieces(model, build_native_request())

    sent = provider.received[0]
    assert sent.path == f"/model/{NAME}/invoke-with-response-stream"
    assert sent.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIATEST/")
    assert "/bedrock/aws4_request" in sent.headers["authorization"]
    assert "anthropic-key" not in str(sent.headers)
    assert sent.body.pop("anthropic_version")
    assert not {"model", "stream"} & sent.body.keys()
    check_body(MessageCreateParamsStreaming, {**sent.body, "model": NAME, "stream": True})


async def test_the_signature_covers_what_arrives(provider: WireProvider, model: CloudModel) -> None:
    provider.answer(build_answer(STARTED, said("ok"), STOPPED))

    await collect_pieces(model, build_request())

    sent = provider.received[0]
    signed = sent.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    headers = {name: sent.headers[name] for name in signed}
    request = AWSRequest("POST", provider.url + sent.path, headers, sent.raw)
    request.context["timestamp"] = sent.headers["x-amz-date"]
    signer = SigV4Auth(Credentials("AKIATEST", "aws-secret"), "bedrock", os.environ["AWS_REGION"])
    expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    assert sent.headers["authorization"].endswith(f"Signature={expected}")


async def test_an_api_key_is_sent_instead_of_a_signature(
    provider: WireProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-key")
    provider.answer(build_answer(STARTED, said("ok"), STOPPED))
    name = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc"
    model = build_bedrock_model(ModelChoice("bedrock", name, "test"), ModelCards())

    await collect_pieces(model, build_request())
    await model.aclose()

    sent = provider.received[0]
    assert sent.headers["authorization"] == "Bearer bedrock-key"
    assert sent.path == f"/model/{name.replace('/', '%2F')}/invoke-with-response-stream"


@pytest.mark.parametrize(
    ("kind", "expected", "retryable"),
    [
        ("throttlingException", "rate_limited", True),
        ("serviceUnavailableException", "overloaded", True),
        ("internalServerException", "server_error", True),
        ("modelStreamErrorException", "server_error", True),
        ("modelTimeoutException", "timeout", True),
        ("validationException", "bad_request", False),
    ],
)
async def test_an_exception_inside_the_stream_says_whether_to_try_again(
    provider: WireProvider, model: CloudModel, kind: str, expected: str, retryable: bool
) -> None:
    provider.answer(build_answer(STARTED, said("half"), encode_exception(kind, "not now")))

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert (raised.value.kind, raised.value.retryable) == (expected, retryable)
    assert "not now" in raised.value.provider_text
    assert "not now" not in str(raised.value)


@pytest.mark.parametrize(
    ("status", "expected", "retryable"),
    [
        (400, "bad_request", False),
        (403, "unauthorized", False),
        (404, "not_found", False),
        (408, "timeout", True),
        (424, "server_error", True),
        (429, "rate_limited", True),
        (500, "server_error", True),
        (503, "overloaded", True),
    ],
)
async def test_error_answers_say_whether_to_try_again(
    provider: WireProvider, model: CloudModel, status: int, expected: str, retryable: bool
) -> None:
    provider.answer_error(status, {"message": "not now"}, x_amzn_errortype="SomeException")

    with pytest.raises(ModelFailed, match=rf"\({status}\)\.$") as raised:
        await collect_pieces(model, build_request())

    assert (raised.value.kind, raised.value.retryable) == (expected, retryable)
    assert "not now" in raised.value.provider_text
    assert len(provider.received) == 1


@pytest.mark.parametrize("inside", [False, True])
async def test_a_too_long_prompt_has_its_own_error(provider: WireProvider, model: CloudModel, inside: bool) -> None:
    message = "Input is too long for requested model."
    if inside:
        provider.answer(build_answer(encode_exception("validationException", message)))
    else:
        provider.answer_error(400, {"message": message})

    with pytest.raises(ContextLimitExceeded):
        await collect_pieces(model, build_request())


BROKEN = said("half")[:-1] + b"\0"
BAD_STREAMS = {
    "no end": ([STARTED, said("half")], False),
    "nothing at all": ([], False),
    "cut in the middle of a frame": ([STARTED, said("half")[:20]], True),
    "a wrong checksum": ([STARTED, BROKEN], False),
    "a wrong checksum of the lengths": ([STARTED, b"\0\0\0\x20" + bytes(28)], False),
    "frames of no known event": ([encode_frame({":event-type": "other", ":message-type": "event"}, b"{}")], False),
    "a chunk that is no JSON": (
        [encode_frame({":event-type": "chunk", ":message-type": "event"}, b"{nonsense")],
        False,
    ),
}


@pytest.mark.parametrize("name", BAD_STREAMS)
async def test_a_stream_that_makes_no_sense_is_a_passing_failure(
    provider: WireProvider, model: CloudModel, name: str
) -> None:
    frames, cut = BAD_STREAMS[name]
    provider.answer(build_answer(*frames, cut=cut))

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert raised.value.retryable


async def test_a_stream_that_ends_before_its_first_event_was_cut(provider: WireProvider, model: CloudModel) -> None:
    provider.answer(build_answer())

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert (raised.value.kind, raised.value.likely_permanent) == ("cut_reply", False)


async def test_a_page_of_a_proxy_is_a_passing_failure(provider: WireProvider, model: CloudModel) -> None:
    provider.answer(Answer([b"<html><body>Please wait</body></html>"], headers={"content-type": "text/html"}))

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert raised.value.retryable


@pytest.mark.parametrize("begin", [b"", STARTED, said("x" * 70_000)])
async def test_a_frame_that_is_too_long_is_given_up_at_once(
    provider: WireProvider, model: CloudModel, begin: bytes
) -> None:
    provider.answer(build_answer(begin + (MAX_EVENT_BYTES + 1).to_bytes(4), hang=True))

    with pytest.raises(ModelFailed, match="without the end of an event") as raised:
        await collect_pieces(model, build_request())

    assert raised.value.kind == "reply_too_long"
    async with asyncio.timeout(5):
        await provider.client_left.wait()


async def test_a_stream_may_be_longer_than_one_event(provider: WireProvider, model: CloudModel) -> None:
    text = "x" * 70_000
    provider.answer(build_answer(STARTED, *[said(text)] * 60, STOPPED))

    pieces = await collect_pieces(model, build_request())

    assert len(join_text(pieces)) == 60 * len(text) > MAX_EVENT_BYTES


async def test_closing_the_reply_closes_the_http_stream(provider: WireProvider, model: CloudModel) -> None:
    provider.answer(build_answer(STARTED, said("half"), hang=True))

    async with aclosing(model.generate(build_request())) as pieces:
        assert await anext(pieces) == TextDelta("half")

    async with asyncio.timeout(5):
        await provider.client_left.wait()


async def test_credentials_that_can_not_be_renewed_fail_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expired = {"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "SessionToken": "c"}
    expired["Expiration"] = "2020-01-01T00:00:00Z"
    script = tmp_path / "credentials.py"
    script.write_text(f"print({json.dumps(json.dumps(expired))})")
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {sys.executable} {script}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    model = build_bedrock_model(CHOICE, ModelCards())

    with pytest.raises(ModelFailed, match="credentials for the provider") as raised:
        await collect_pieces(model, build_request())
    await model.aclose()

    assert (raised.value.kind, raised.value.retryable, raised.value.likely_permanent) == ("unauthorized", True, True)


def test_a_model_without_credentials_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"EVERTURN_MODEL": f"bedrock:{NAME}", "AWS_REGION": "us-east-1"}
    assert choose_model(environment).name == NAME

    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert choose_model({**environment, "AWS_BEARER_TOKEN_BEDROCK": "k"}).name == NAME
    with pytest.raises(
        BadModelSetting, match=r"names a model of bedrock, but its credentials were not found.*AWS_BEARER_TOKEN_BEDROCK"
    ):
        choose_model(environment)
    with pytest.raises(BadModelSetting, match="names a model of bedrock, but AWS_REGION is not set"):
        choose_model({"EVERTURN_MODEL": f"bedrock:{NAME}"})


def test_the_ledger_names_the_cloud_and_the_card_is_that_of_the_model(model: CloudModel) -> None:
    assert (model.traits.ledger_name, model.traits.provider) == (f"bedrock:{NAME}", "aws.bedrock")
    assert (model.traits.context_tokens, model.traits.documents) == (200_000, True)
