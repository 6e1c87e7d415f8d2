"""Servers that speak OpenAI's API in their own ways: docs/models.md says which server does what. The replies in
`replies/` are whole streams in the form of one server each."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.provider import Answer, WireProvider, build_openai_events, check_body
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from chat_proc.models.cards import ModelCards
from chat_proc.models.endpoints import Server
from chat_proc.models.openai import OpenAIModel, build_model
from chat_proc.models.roles import ModelChoice
from everturn.models.port import (
    ContextLimitExceeded,
    MediaPart,
    ModelFailed,
    ModelRequest,
    PromptMessage,
    ReasoningDelta,
    ReplyFinished,
    TextPart,
    encode_media,
)
from everturn_testing.models.model_contract import (
    build_native_request,
    build_request,
    collect_pieces,
    join_calls,
    join_text,
)

REPLIES = Path(__file__).parent / "replies"


@pytest.fixture
async def model(provider: WireProvider) -> AsyncIterator[OpenAIModel]:
    """A model of an endpoint, as a worker builds it."""
    server = Server("local", f"{provider.url}/v1", None)
    adapter = build_model(ModelChoice("local", "m", "test"), ModelCards(), server)
    yield adapter
    await adapter.aclose()


@dataclass(frozen=True)
class Reply:
    """What a reply says. Its usage is 100 and 20 tokens."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    cached: int = 0
    output: int = 20


HELLO = Reply("Hello", "A greeting.")
EXPECTED = {
    "deepseek": Reply(reasoning="Look it up.", calls=(("read", "call_00_a", '{"n":1}'),), cached=64),
    "deepseek_cache": Reply("Hi", cached=64),
    "empty_think_tags": Reply("Hello"),
    "gemini": Reply(
        "Let me see.",
        calls=(("read", "function-call-1", '{"n":1}'), ("read", "function-call-2", '{"n":2}')),
        output=50,
    ),
    "groq": HELLO,
    "kimi": Reply("Hello", "A greeting.", cached=64),
    "litellm": HELLO,
    "llama_cpp": HELLO,
    "lm_studio": Reply("Let me see.", calls=(("read", "", '{"n":1}'),)),
    "mistral_calls": Reply(calls=(("read", "D681PevKs", '{"n":1}'), ("read", "8hTbQ2xYz", '{"n":2}'))),
    "mistral_thinking": HELLO,
    "ollama": HELLO,
    "ollama_calls": Reply(calls=(("read", "call_x1", '{"n":1}'), ("read", "call_x2", '{"n":2}'))),
    "openrouter": Reply("Hello", "A greeting.", cached=64),
    "qwen_dashscope": Reply(
        reasoning="Two files.", calls=(("read", "call_a", '{"n":1}'), ("read", "call_b", '{"n":2}'))
    ),
    "think_tags": Reply("Hello <think>", "A greeting."),
    "vllm": Reply("Hello", "A greeting.", cached=64),
    "xai": Reply(reasoning="Look.", calls=(("read", "call_1", '{"n":1}'),)),
}


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_reply_is_read_in_the_form_of_each_server(
    provider: WireProvider, model: OpenAIModel, name: str
) -> None:
    expected = EXPECTED[name]
    provider.answer_bytes((REPLIES / f"{name}.sse").read_bytes())

    pieces = await collect_pieces(model, build_request())

    finish = pieces[-1]
    assert isinstance(finish, ReplyFinished)
    usage = finish.usage
    assert join_text(pieces) == expected.text
    assert "".join(piece.text for piece in pieces if isinstance(piece, ReasoningDelta)) == expected.reasoning
    assert tuple(join_calls(pieces)) == expected.calls
    assert (finish.reason, usage.estimated, usage.input_tokens) == ("stop", False, 100)
    assert (usage.cache_read_tokens, usage.output_tokens) == (expected.cached, expected.output)


def test_each_recorded_reply_is_read() -> None:
    assert {file.stem for file in REPLIES.iterdir()} == {*EXPECTED, "no_end_mark"}


async def test_a_reply_without_an_end_mark_and_usage_is_whole(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_bytes((REPLIES / "no_end_mark.sse").read_bytes())

    pieces = await collect_pieces(model, build_request())

    assert join_text(pieces) == "Hello"
    assert isinstance(pieces[-1], ReplyFinished)
    assert pieces[-1].usage.estimated


@pytest.mark.parametrize("finish", [None, ""])
async def test_usage_after_a_reply_ends_it_without_a_finish_reason(
    provider: WireProvider, model: OpenAIModel, finish: str | None
) -> None:
    *_, usage, done = build_openai_events("unused")
    provider.answer_events(chunk({"content": "Hello"}), chunk({}, finish), usage, done)

    pieces = await collect_pieces(model, build_request())

    assert join_text(pieces) == "Hello"
    assert isinstance(pieces[-1], ReplyFinished)
    assert (pieces[-1].reason, pieces[-1].usage.input_tokens) == ("stop", 1_000)


async def test_usage_in_the_middle_does_not_end_a_reply(provider: WireProvider, model: OpenAIModel) -> None:
    *_, usage, done = build_openai_events("unused")
    provider.answer_events(usage, chunk({"content": "Hel"}), done)

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert raised.value.kind == "cut_reply"


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more}
    return f"data: {json.dumps({'id': 'c', 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"


@pytest.mark.parametrize("text", ["  <thin", "<", "\n"])
async def test_text_that_could_have_begun_a_tag_is_text(provider: WireProvider, model: OpenAIModel, text: str) -> None:
    provider.answer_events(chunk({"content": text}), chunk({}, "stop"))

    assert join_text(await collect_pieces(model, build_request())) == text


async def test_thinking_without_an_end_is_no_answer(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_events(chunk({"content": "<think>I wonder </"}), chunk({}, "length"))

    pieces = await collect_pieces(model, build_request())

    assert join_text(pieces) == ""
    assert "".join(piece.text for piece in pieces if isinstance(piece, ReasoningDelta)) == "I wonder </"


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("model_length", "length"),
        ("model_context_window_exceeded", "length"),
        ("sensitive", "content_filter"),
        ("eos", "stop"),
    ],
)
async def test_finish_reasons_of_other_servers_become_ours(
    provider: WireProvider, model: OpenAIModel, finish: str, reason: str
) -> None:
    provider.answer_events(chunk({"content": "x"}), chunk({}, finish))

    pieces = await collect_pieces(model, build_request())

    assert isinstance(pieces[-1], ReplyFinished)
    assert pieces[-1].reason == reason


FAILED_STREAMS = {
    "OpenRouter": (
        'data: {"id":"gen-1","choices":[],"error":{"code":502,"message":"Worker limit reached"}}',
        "server_error",
    ),
    "OpenRouter, in the choice": (
        chunk({"content": ""}, "error", error={"code": 429, "message": "Too many requests"}),
        "rate_limited",
    ),
    "Mistral": (chunk({"content": ""}, "error"), "provider_error"),
    "vLLM, aborted": (chunk({}, "abort"), "provider_error"),
    "DeepSeek, without resources": (chunk({}, "insufficient_system_resource"), "provider_error"),
    "Z.ai": (chunk({}, "network_error"), "provider_error"),
    "vLLM, before it wrapped errors": (
        'data: {"object":"error","message":"Out of memory","type":"InternalServerError","param":null,"code":500}',
        "server_error",
    ),
    "Ollama": ('data: {"error":{"message":"model runner has stopped","type":"api_error"}}', "server_error"),
    "a text in place of an error": ('data: {"error":"model runner has stopped"}', "provider_error"),
    "llama.cpp, in a field of its own": (
        'error: {"code":500,"message":"The slot is busy","type":"server_error"}',
        "server_error",
    ),
    "LM Studio": ('event: error\ndata: {"error":{"message":"The model has crashed"}}', "provider_error"),
    "LiteLLM": (
        'data: {"error":{"message":"litellm.APIError: failed","type":null,"param":null,"code":"500"}}',
        "server_error",
    ),
}


@pytest.mark.parametrize("name", FAILED_STREAMS)
async def test_an_error_in_a_stream_is_no_answer(provider: WireProvider, model: OpenAIModel, name: str) -> None:
    event, kind = FAILED_STREAMS[name]
    provider.answer_events(chunk({"content": "half"}), event.strip() + "\n\n", "data: [DONE]\n\n")

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert (raised.value.kind, raised.value.retryable) == (kind, True)


async def test_a_call_that_a_server_could_not_read_is_not_repeated(provider: WireProvider, model: OpenAIModel) -> None:
    error = {"message": "Failed to call a function.", "type": "invalid_request_error", "code": "tool_use_failed"}
    provider.answer_events(f"data: {json.dumps({'error': {**error, 'status_code': 400}})}\n\n")

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert not raised.value.retryable


TOO_LONG = {
    "DashScope": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
    "Gemini": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "Groq": "Please reduce the length of the messages or completion.",
    "Kimi": "Invalid request: Your request exceeded model token limit: 131072",
    "LM Studio": "The number of tokens to keep from the initial prompt is greater than the context length.",
    "Mistral": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "OpenRouter": "Input length 40000 exceeds the maximum allowed input length of 32768 tokens.",
    "Together": "The input (49146 tokens) is longer than the model's context length (40960 tokens).",
    "llama.cpp": "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "vLLM": "This model's maximum context length is 16384 tokens. However, your request has 18225 input tokens.",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
}


@pytest.mark.parametrize("name", TOO_LONG)
async def test_a_request_that_is_too_long_is_known_by_each_servers_words(
    provider: WireProvider, model: OpenAIModel, name: str
) -> None:
    provider.answer_error(400, {"error": {"code": 400, "message": TOO_LONG[name], "type": "invalid_request_error"}})

    with pytest.raises(ContextLimitExceeded):
        await collect_pieces(model, build_request())


OVERFLOW = {"code": 400, "message": TOO_LONG["llama.cpp"], "type": "exceed_context_size_error"}
OVERFLOWS = {
    "an error in a list": Answer([json.dumps([{"error": OVERFLOW}]).encode()], status=400),
    "status 500": Answer([b'{"error":{"code":500,"message":"Context size has been exceeded."}}'], status=500),
    "in the stream": Answer([f"data: {json.dumps({'error': OVERFLOW})}\n\n".encode()]),
    "in a field of its own": Answer([f"error: {json.dumps(OVERFLOW)}\n\ndata: [DONE]\n\n".encode()]),
    "status 200": Answer([json.dumps({"error": OVERFLOW}).encode()], headers={"content-type": "application/json"}),
    "status 200, not wrapped": Answer(
        [json.dumps({"object": "error", **OVERFLOW}).encode()], headers={"content-type": "application/json"}
    ),
}


@pytest.mark.parametrize("name", OVERFLOWS)
async def test_a_request_that_is_too_long_is_known_wherever_a_server_says_it(
    provider: WireProvider, model: OpenAIModel, name: str
) -> None:
    provider.answer(OVERFLOWS[name])

    with pytest.raises(ContextLimitExceeded):
        await collect_pieces(model, build_request())


def refuse(status: int, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"object": "error", "message": message, "type": "invalid_request_error", "param": None, "code": None}


NO_OPTIONS = {"stream_options": None}
REFUSALS = {
    "Mistral, usage": (
        422,
        {
            "object": "error",
            "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options", "include_usage"]}]},
            "type": "invalid_request_error",
        },
        NO_OPTIONS,
    ),
    "Databricks, usage": (*refuse(400, 'Unrecognized request argument: "stream_options"'), NO_OPTIONS),
    "a gateway to OpenAI": (
        *refuse(400, "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."),
        {"max_tokens": None, "max_completion_tokens": 99},
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_parameter_that_a_server_refuses_is_not_sent_again(
    provider: WireProvider, model: OpenAIModel, name: str
) -> None:
    status, body, expected = REFUSALS[name]
    provider.answer_error(status, body)
    provider.answer_events(*build_openai_events("hi"))

    first = await collect_pieces(model, build_native_request())
    second = await collect_pieces(model, build_native_request())

    assert (join_text(first), join_text(second)) == ("hi", "hi")
    refused, *accepted = [received.body for received in provider.received]
    assert len(accepted) == 2
    for sent in accepted:
        changed = {key for key in {*sent, *refused} if sent.get(key) != refused.get(key)}
        assert {key: sent.get(key) for key in changed} == expected
        check_body(CompletionCreateParamsStreaming, sent)


def read_roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def check_results_follow_their_calls(body: dict[str, Any]) -> None:
    open_calls: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_calls.pop(0)
        else:
            assert not open_calls
        open_calls += [call["id"] for call in message.get("tool_calls", ())]
    assert not open_calls


ROLES = ["system", "user", "assistant", "tool", "tool", "user", "assistant", "tool"]
SEPARATED = ["system", "user", "assistant", "tool", "tool", "assistant", "user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (["Unexpected role 'user' after role 'tool'"], SEPARATED),
        (["Conversation roles must alternate user/assistant/user/assistant/..."], SEPARATED),
        (
            ["This model only supports single tool-calls at once!"],
            ["system", "user", "assistant", "tool", "assistant", "tool", "user", "assistant", "tool"],
        ),
        (["Assistant message must have either content or tool_calls, but not both."], ROLES),
        (["System role not supported"], ROLES[1:]),
        (["Conversation roles must alternate user/assistant/..."] * 2, SEPARATED[1:]),
    ],
    ids=["Mistral", "Mistral's templates", "Llama 3", "Mistral 7B", "Gemma 2", "a template without a system role"],
)
async def test_roles_are_arranged_as_a_chat_template_requires(
    provider: WireProvider, model: OpenAIModel, messages: list[str], expected: list[str]
) -> None:
    for message in messages:
        provider.answer_error(*refuse(400, message))
    provider.answer_events(*build_openai_events("hi"))

    assert join_text(await collect_pieces(model, build_native_request())) == "hi"

    first, *_, last = [received.body for received in provider.received]
    assert (read_roles(first), read_roles(last)) == (ROLES, expected)
    check_results_follow_their_calls(last)
    if "system" not in expected:
        assert last["messages"][0]["content"] == "Be brief.\n\nRun both."
    if "either content" in messages[0]:
        assert [message["content"] for message in last["messages"] if "tool_calls" in message] == [None, None]
    check_body(CompletionCreateParamsStreaming, last)


async def test_a_form_that_does_not_help_is_not_kept(provider: WireProvider, model: OpenAIModel) -> None:
    for _ in range(3):
        provider.answer_error(*refuse(400, "Conversation roles must alternate"))
    provider.answer_events(*build_openai_events("hi"))

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_native_request())
    await collect_pieces(model, build_native_request())

    assert (raised.value.kind, raised.value.retryable) == ("bad_request", False)
    assert [read_roles(received.body) for received in provider.received] == [ROLES, SEPARATED, SEPARATED[1:], ROLES]


async def test_texts_are_sent_as_one_and_pictures_as_data(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_events(*build_openai_events("ok"))
    picture = MediaPart("image/png", encode_media(b"PNG"), "a.png")
    texts = TextPart("One."), TextPart("Two.")
    system = PromptMessage("system", texts)

    await collect_pieces(model, ModelRequest((system, PromptMessage("user", texts)), 99))
    await collect_pieces(model, ModelRequest((system, PromptMessage("user", (*texts, picture))), 99))

    plain, with_picture = [received.body["messages"] for received in provider.received]
    assert [message["content"] for message in plain] == ["One.\n\nTwo.", "One.\n\nTwo."]
    assert [part["type"] for part in with_picture[1]["content"]] == ["text", "text", "image_url"]
    assert with_picture[1]["content"][2]["image_url"]["url"] == "data:image/png;base64,UE5H"
