"""Servers that speak OpenAI's API in their own ways: docs/models.md says which server does what. The replies in
`replies/` are whole streams in the form of one server each."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from helpers.provider import Answer, WireProvider, build_openai_events, check_body
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

from chat_proc.models.cards import ModelCards
from chat_proc.models.dialects import Dialect, DialectLearner
from chat_proc.models.endpoints import Server
from chat_proc.models.openai import OpenAIModel, build_model
from chat_proc.models.roles import ModelChoice
from everturn.models.port import (
    ContextLimitExceeded,
    JsonReply,
    MediaPart,
    ModelFailed,
    ModelRequest,
    PromptMessage,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
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
    *_, usage, _ = build_openai_events("unused")
    provider.answer_events(usage, chunk({"content": "Hel"}))

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert raised.value.kind == "cut_reply"


@pytest.mark.parametrize("mark", ["data: [DONE]\n\n", "data:[DONE]", "id: 9\r\ndata: [DONE]\r\n\r\n"])
async def test_an_end_mark_after_a_reply_ends_it_without_a_finish_reason(
    provider: WireProvider, model: OpenAIModel, mark: str
) -> None:
    call = {"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"n":1}'}}
    provider.answer(Answer([(chunk({"content": "Hello"}) + chunk({"tool_calls": [call]}) + mark).encode()]))

    pieces = await collect_pieces(model, build_request())

    assert (join_text(pieces), join_calls(pieces)) == ("Hello", [("read", "a", '{"n":1}')])
    assert isinstance(pieces[-1], ReplyFinished)
    assert pieces[-1].reason == "stop"


async def test_text_about_an_end_mark_is_none(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_events(chunk({"content": "Then\ndata: [DONE]\n\n"}))

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert raised.value.kind == "cut_reply"


CALL = {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"n":1}'}}
STREAMED = {"content": "Hel"}, {"content": "lo"}
WHOLE = {"role": "assistant", "content": "Hello", "reasoning_content": "A greeting.", "tool_calls": [CALL]}


THOUGHT = {"reasoning_content": "A greeting."}


@pytest.mark.parametrize("deltas", [(), ({"role": "assistant", "content": ""},), (THOUGHT,), STREAMED])
async def test_a_whole_message_is_read_unless_it_was_streamed(
    provider: WireProvider, model: OpenAIModel, deltas: tuple[dict[str, Any], ...]
) -> None:
    message = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": WHOLE, "finish_reason": "stop"}],
    }
    provider.answer_events(*map(chunk, deltas), f"data: {json.dumps(message)}\n\n", "data: [DONE]\n\n")

    pieces = await collect_pieces(model, build_request())

    is_streamed = deltas == STREAMED
    assert join_text(pieces) == "Hello"
    assert [piece for piece in pieces if isinstance(piece, ReasoningDelta)] == (
        [] if is_streamed else [ReasoningDelta("A greeting.")]
    )
    assert join_calls(pieces) == ([] if is_streamed else [("read", "a", '{"n":1}')])
    assert isinstance(pieces[-1], ReplyFinished)


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
    "TensorRT-LLM": "The sum of prompt length (9351.0), query length (0) should not exceed max_num_tokens (8192)",
    "Text Generation Inference": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 16384. Given: "
    "9000 `inputs` tokens and 8192 `max_new_tokens`",
    "Text Generation Inference, without the reply": "Input validation error: `inputs` must have less than 4095 tokens. "
    "Given: 5217",
    "Together": "The input (49146 tokens) is longer than the model's context length (40960 tokens).",
    "llama.cpp": "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "vLLM": "This model's maximum context length is 16384 tokens. However, your request has 18225 input tokens.",
    "vLLM, in the name of the reply": "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's "
    "maximum context length is 12000 tokens and your request has 5000 input tokens (8192 > 12000 - 5000).",
    "vLLM, with pictures": "The decoder prompt (length 42781) is longer than the maximum model length of 40960. Make "
    "sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
}


@pytest.mark.parametrize("name", TOO_LONG)
async def test_a_request_that_is_too_long_is_known_by_each_servers_words(
    provider: WireProvider, model: OpenAIModel, name: str
) -> None:
    provider.answer_error(400, {"error": {"code": 400, "message": TOO_LONG[name], "type": "invalid_request_error"}})

    with pytest.raises(ContextLimitExceeded):
        await collect_pieces(model, replace(build_request(), max_output_tokens=8_192))
    assert len(provider.received) == 1


FILTERED = {
    "Azure, through LiteLLM": {
        "message": "litellm.ContentPolicyViolationError: AzureException - The response was filtered due to the prompt "
        "triggering Azure OpenAI's content management policy.",
        "code": "400",
    },
    "DashScope": {"message": "Input data may contain inappropriate content.", "code": "data_inspection_failed"},
    "DeepSeek": {"message": "Content Exists Risk", "code": "invalid_request_error"},
    "Kimi": {"message": "The request was rejected because it was considered high risk", "type": "content_filter"},
    "OpenAI": {
        "message": "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
        "code": "invalid_prompt",
    },
}


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("name", FILTERED)
async def test_a_filtered_request_is_known_by_each_servers_words(
    provider: WireProvider, model: OpenAIModel, name: str, status: int
) -> None:
    body = json.dumps({"error": FILTERED[name]}).encode()
    provider.answer(Answer([body], status=status, headers={"content-type": "application/json"}))

    [finish] = await collect_pieces(model, build_request())

    assert isinstance(finish, ReplyFinished)
    assert finish.reason == "content_filter"


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


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you ...", 4_096),
        ("<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 2000]", 2_000),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 4096]", 4_096),
        ("Invalid 'max_completion_tokens': integer above maximum value. Expected a value <= 4096, but got 8192", 4_096),
        ("max_tokens: 8192 > 4096, which is the maximum (1024 without thinking)", 4_096),
        ("max_tokens is limited to 2048 for gpt-x-2024-05-13 (request id: 4000-7f)", 2_048),
        ("Error code: 400: 'max_tokens' is not known, use 'max_completion_tokens'. model=gpt-x-2024-05-13", None),
        ("max_tokens must not be sent", None),
        ("invalid params, max_tokens is out of range (2013)", None),
        ("invalid params, max_tokens is out of range (2013) (request_id:05db5ded497bacba57c1e30ef4778e05)", None),
        ("max_tokens is too large (maximum 4096).", 4_096),
        ("The sum of prompt length (4000) and max_tokens (8192) should not exceed max_seq_len (9000)", None),
    ],
    ids=[
        "OpenAI",
        "DashScope",
        "DeepSeek",
        "the newer name",
        "two limits",
        "a date in a name",
        "another parameter",
        "no number",
        "MiniMax",
        "MiniMax, with an id",
        "in parentheses",
        "TensorRT-LLM",
    ],
)
async def test_a_limit_is_the_number_in_the_words_that_name_it(
    provider: WireProvider, model: OpenAIModel, words: str, limit: int | None
) -> None:
    provider.answer_error(*refuse(400, words))
    provider.answer_events(*build_openai_events("hi"))

    with suppress(ModelFailed):
        await collect_pieces(model, replace(build_request(), max_output_tokens=8_192))

    sent = [received.body.get("max_tokens") for received in provider.received]
    assert sent[0] == 8_192
    assert sent[1:] == ([limit] if limit else [None] if "use" in words else [])


async def test_calls_side_by_side_keep_what_each_has_learned(provider: WireProvider, model: OpenAIModel) -> None:
    first_is_answered, second_is_refused = asyncio.Event(), asyncio.Event()
    learner = DialectLearner(model.traits, Dialect())

    async def ask_first(dialect: Dialect, _tokens: int) -> None:
        await second_is_refused.wait()
        if dialect.accepts("system_role"):
            raise OSError("System role not supported")
        first_is_answered.set()

    async def ask_second(dialect: Dialect, _tokens: int) -> None:
        if dialect.accepts("stream_options"):
            second_is_refused.set()
            raise OSError("unknown field stream_options")
        await first_is_answered.wait()

    async def ask_third(dialect: Dialect, _tokens: int) -> frozenset[str]:
        return dialect.refused

    def read(refusal: OSError) -> tuple[int, str]:
        return 400, str(refusal)

    await asyncio.gather(*(learner.ask(99, ask, OSError, read) for ask in (ask_first, ask_second)))

    assert await learner.ask(99, ask_third, OSError, read) == {"system_role", "stream_options"}


def build_whole_reply(text: str, **more: Any) -> dict[str, Any]:
    """A reply that is no stream."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **more}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


@pytest.mark.parametrize(("indent", "type_"), [(None, "application/json"), (2, "application/json"), (2, "text/plain")])
@pytest.mark.parametrize("before", ["", "\n\n \n"])
@pytest.mark.parametrize("text", ["Hello\n\ndata: x", "Hello " * 100_000])
async def test_a_whole_reply_in_place_of_a_stream_is_read(
    provider: WireProvider, model: OpenAIModel, text: str, before: str, indent: int | None, type_: str
) -> None:
    function = {"name": "read", "arguments": '{"n":1}'}
    calls = [{"id": id, "type": "function", "function": function} for id in ("a", "b")]
    reply = build_whole_reply(text, reasoning_content="A greeting.", tool_calls=calls, refusal=None)
    if type_ == "text/plain":
        del reply["object"]
    body = (before + json.dumps(reply, indent=indent)).encode()
    headers = {"content-type": f"{type_}; charset=utf-8"}
    provider.answer(Answer([body[:3], body[3:200], body[200:]], headers=headers))

    pieces = await collect_pieces(model, build_request())

    finish = pieces[-1]
    assert isinstance(finish, ReplyFinished)
    assert join_text(pieces) == text and pieces[0] == ReasoningDelta("A greeting.")
    assert join_calls(pieces) == [("read", "a", '{"n":1}'), ("read", "b", '{"n":1}')]
    assert (finish.reason, finish.usage.input_tokens, finish.usage.output_tokens) == ("stop", 100, 20)
    assert len(provider.received) == 1


async def test_events_that_are_called_json_are_not_held_back(provider: WireProvider, model: OpenAIModel) -> None:
    headers = {"content-type": "application/json"}
    provider.answer_events(chunk({"content": "Hello"}), headers=headers, hang=True)

    async with aclosing(model.generate(build_request())) as pieces:
        assert await anext(pieces) == TextDelta("Hello")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "Your organization must be verified to stream this model. Please go to: https://platform.openai.com/"),
        (400, "Unsupported value: 'stream' does not support true with this model."),
        (400, "This model doesn't support tool use in streaming mode."),
        (400, "The model is unsupported for streaming."),
        (500, "Cannot use tools with stream"),
    ],
    ids=["OpenAI", "OpenAI's o1", "Bedrock, tools", "Bedrock", "llama.cpp"],
)
async def test_a_server_that_refuses_to_stream_is_asked_for_whole_replies(
    provider: WireProvider, model: OpenAIModel, status: int, words: str
) -> None:
    provider.answer_error(*refuse(status, words))
    provider.answer(
        Answer([json.dumps(build_whole_reply("hi")).encode()], headers={"content-type": "application/json"})
    )

    replies = [await collect_pieces(model, build_native_request()) for _ in range(2)]

    assert [join_text(pieces) for pieces in replies] == ["hi", "hi"]
    refused, *accepted = [received.body for received in provider.received]
    assert refused["stream"] is True and len(accepted) == 2
    for sent in accepted:
        assert sent["stream"] is False and "stream_options" not in sent
        check_body(CompletionCreateParamsNonStreaming, sent)


async def test_only_a_refusal_to_stream_is_learned_by_kind(provider: WireProvider, model: OpenAIModel) -> None:
    provider.answer_error(*refuse(400, "`response_format` does not support streaming"))
    provider.answer_error(*refuse(400, "System role not supported"))
    whole = Answer([json.dumps(build_whole_reply("hi")).encode()], headers={"content-type": "application/json"})
    in_json = replace(build_request(), reply_form=JsonReply())
    provider.answer(whole)
    await collect_pieces(model, in_json)
    await collect_pieces(model, in_json)
    provider.answer_events(*build_openai_events("hi"))

    await collect_pieces(model, build_request())

    sent = [(received.body["stream"], received.body["messages"][0]["role"]) for received in provider.received]
    assert sent == [(True, "system"), (False, "system"), (False, "user"), (False, "user"), (True, "user")]


NO_TOOLS = {
    "Ollama": refuse(400, "registry.ollama.ai/library/gemma2:2b does not support tools"),
    "vLLM": refuse(400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    "llama.cpp": (
        500,
        {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}},
    ),
    "OpenRouter": (404, {"error": {"code": 404, "message": "No endpoints found that support tool use. Try later."}}),
}


@pytest.mark.parametrize("name", NO_TOOLS)
async def test_a_server_that_refuses_tools_is_not_asked_again(
    provider: WireProvider, model: OpenAIModel, name: str
) -> None:
    status, body = NO_TOOLS[name]
    provider.answer_error(status, body)

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_native_request())

    assert (raised.value.kind, raised.value.retryable) == ("bad_request", False)
    assert raised.value.detail == (
        f"The model's server does not accept tools ({status}). Start it with its option for tools, or set the codec to "
        "json."
    )
    assert len(provider.received) == 1


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
        ([[{"error": {"code": 400, "message": "Developer instruction is not enabled for models/m"}}]], ROLES[1:]),
        (["Conversation roles must alternate user/assistant/..."] * 2, SEPARATED[1:]),
    ],
    ids=[
        "Mistral",
        "Mistral's templates",
        "Llama 3",
        "Mistral 7B",
        "Gemma 2",
        "Gemma 3 at Google",
        "a template without a system role",
    ],
)
async def test_roles_are_arranged_as_a_chat_template_requires(
    provider: WireProvider, model: OpenAIModel, messages: list[Any], expected: list[str]
) -> None:
    for message in messages:
        provider.answer_error(*(refuse(400, message) if isinstance(message, str) else (400, message)))
    provider.answer_events(*build_openai_events("hi"))

    assert join_text(await collect_pieces(model, build_native_request())) == "hi"

    first, *_, last = [received.body for received in provider.received]
    assert (read_roles(first), read_roles(last)) == (ROLES, expected)
    check_results_follow_their_calls(last)
    if "system" not in expected:
        assert last["messages"][0]["content"] == "Be brief.\n\nRun both."
    beside_calls = [message["content"] for message in last["messages"] if "tool_calls" in message]
    if "either content" in messages[0]:
        assert beside_calls == [None, None]
    else:
        assert [text for text in beside_calls if text] == ["Both.\n\nAt once."]
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
