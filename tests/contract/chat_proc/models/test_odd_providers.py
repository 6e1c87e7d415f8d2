"""Whatever JSON a provider sends, an adapter gives a reply that can be stored, or raises ModelFailed."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from anthropic import AsyncAnthropic
from helpers.event_loop import watch_loop
from helpers.provider import Answer, WireProvider
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI

from chat_proc.models.anthropic import AnthropicModel
from chat_proc.models.anthropic import build_model as build_anthropic_model
from chat_proc.models.bounded_http import MAX_EVENT_BYTES, build_event_hooks
from chat_proc.models.cards import ModelCards
from chat_proc.models.dialects import MAX_FORMS
from chat_proc.models.openai import OpenAIModel
from chat_proc.models.openai import build_model as build_openai_model
from chat_proc.models.openai_responses import ResponsesModel
from chat_proc.models.openai_responses import build_model as build_responses_model
from chat_proc.models.retry import ModelRetryLimits, RetryingModel
from chat_proc.models.roles import ModelChoice
from everturn.core.http_bodies import MAX_ERROR_BYTES
from everturn.models.port import (
    LanguageModel,
    ModelFailed,
    ModelRetry,
    ModelTraits,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from everturn_testing.models.model_contract import build_request, collect_pieces, join_text

pytestmark = pytest.mark.sampled

TRAITS = ModelTraits("m", 100_000, images=False, documents=False)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats()
    | st.sampled_from(["", "stop", "\ud83d", "\ude00x", "error", "overloaded_error", "429"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "message", "code"]), inner, max_size=3)
    ),
    max_leaves=5,
)
parts = st.lists(st.fixed_dictionaries({}, optional={"text": JSON, "thinking": JSON}), max_size=3)
deltas = st.fixed_dictionaries({}, optional={"content": JSON | parts, "reasoning": JSON, "refusal": JSON})
COUNTS = ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "cached_tokens"]
counts = st.dictionaries(st.sampled_from(COUNTS), JSON)
own_fields = {"usage": JSON | counts, "error": JSON}
choices = st.fixed_dictionaries({"delta": deltas | JSON}, optional={**own_fields, "finish_reason": JSON})
chunks = st.fixed_dictionaries({}, optional={**own_fields, "choices": st.lists(choices, max_size=2), "object": JSON})
"""Chunks of servers that speak OpenAI's API, with fields of any shape."""
Build = Callable[[httpx2.MockTransport], LanguageModel]


def build_openai(
    transport: httpx2.MockTransport, adapter: Callable[[AsyncOpenAI, ModelTraits], LanguageModel] = OpenAIModel
) -> LanguageModel:
    http = httpx2.AsyncClient(transport=transport, event_hooks=build_event_hooks())
    return adapter(AsyncOpenAI(api_key="k", base_url="http://model.test/v1", max_retries=0, http_client=http), TRAITS)


def build_responses(transport: httpx2.MockTransport) -> LanguageModel:
    return build_openai(transport, ResponsesModel)


def build_anthropic(transport: httpx2.MockTransport) -> LanguageModel:
    http = httpx2.AsyncClient(transport=transport, event_hooks=build_event_hooks())
    client = AsyncAnthropic(api_key="k", base_url="http://model.test", max_retries=0, http_client=http)
    return AnthropicModel(client, TRAITS)


def ask(build: Build, response: httpx2.Response) -> str:
    """The text of the reply; raises ModelFailed. Everything that comes out can be encoded and counted."""

    async def run() -> str:
        pieces = await collect_pieces(build(httpx2.MockTransport(lambda _: response)), build_request())
        for piece in pieces:
            if isinstance(piece, TextDelta | ReasoningDelta):
                piece.text.encode()
            elif isinstance(piece, ToolCallDelta):
                f"{piece.call_id}{piece.name}{piece.arguments}".encode()
        usage = pieces[-1].usage  # type: ignore[union-attr]
        assert all(0 <= count < 2**63 for count in (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens))
        assert all(type(count) is int for count in (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens))
        return join_text(pieces)

    try:
        return asyncio.run(run())
    except ModelFailed as failure:
        str(failure).encode()
        failure.provider_text.encode()
        raise


def build_stream(*events: Any) -> httpx2.Response:
    lines = [f"event: {event.get('type', 'x')}\ndata: {json.dumps(event)}\n\n" for event in events]
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text="".join(lines))


def build_openai_events(text: object, usage: object, finish: object) -> list[dict[str, Any]]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return [{"id": "c", "model": "m", "choices": [choice], "usage": {"prompt_tokens": usage, "completion_tokens": 1}}]


def build_anthropic_events(text: object, usage: object, finish: object) -> list[dict[str, Any]]:
    return [
        {"type": "message_start", "message": {"id": "c", "model": "m", "usage": {"input_tokens": usage}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "message_delta", "delta": {"stop_reason": finish}, "usage": {"output_tokens": usage}},
    ]


def build_responses_events(text: object, usage: object, finish: object) -> list[dict[str, Any]]:
    counts = {"input_tokens": usage, "output_tokens": 1, "input_tokens_details": {"cached_tokens": usage}}
    details = None if finish == "stop" else {"reason": finish}
    ended = {"id": "r", "model": finish, "usage": counts, "incomplete_details": details}
    return [
        {"type": "response.output_text.delta", "output_index": usage, "delta": text},
        *([{"type": "response.completed", "response": ended}] if finish is not None else []),
    ]


BUILDERS = [build_openai, build_responses, build_anthropic]
NAMES = ["openai", "openai-responses", "anthropic"]
PROVIDERS = [
    (build_openai, build_openai_events),
    (build_responses, build_responses_events),
    (build_anthropic, build_anthropic_events),
]


@pytest.mark.parametrize(("build", "build_events"), PROVIDERS, ids=NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=JSON, usage=JSON, finish=JSON)
def test_values_of_any_shape_in_a_stream_never_crash_us(
    build: Build, build_events: Callable[..., list[dict[str, Any]]], text: object, usage: object, finish: object
) -> None:
    try:
        ask(build, build_stream(*build_events(text, usage, finish)))
    except ModelFailed:
        """Refused in order."""


def build_openai_calls(index: object, call_id: object, name: object, arguments: object) -> list[dict[str, Any]]:
    call = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    chunks = [{"delta": {"tool_calls": [call, call]}}, {"delta": {}, "finish_reason": "tool_calls"}]
    return [{"id": "c", "model": "m", "choices": [chunk]} for chunk in chunks]


def build_anthropic_calls(index: object, call_id: object, name: object, arguments: object) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        {
            "type": "content_block_delta",
            "index": index,
            "delta": {"type": "input_json_delta", "partial_json": arguments},
        },
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    ]


def build_responses_calls(index: object, call_id: object, name: object, arguments: object) -> list[dict[str, Any]]:
    call = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": call},
        {"type": "response.function_call_arguments.delta", "output_index": index, "delta": arguments},
        {"type": "response.output_item.done", "output_index": index, "item": call},
        {"type": "response.completed", "response": {"id": "r"}},
    ]


CALLS = [
    (build_openai, build_openai_calls),
    (build_responses, build_responses_calls),
    (build_anthropic, build_anthropic_calls),
]


@pytest.mark.parametrize(("build", "build_events"), CALLS, ids=NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(index=JSON, call_id=JSON, name=JSON, arguments=JSON)
def test_calls_of_any_shape_never_crash_us(
    build: Build,
    build_events: Callable[..., list[dict[str, Any]]],
    index: object,
    call_id: object,
    name: object,
    arguments: object,
) -> None:
    ask(build, build_stream(*build_events(index, call_id, name, arguments)))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chunk=chunks)
def test_fields_that_only_some_servers_send_never_crash_us(chunk: dict[str, Any]) -> None:
    try:
        ask(build_openai, build_stream(chunk, *build_openai_events("Hello", 1, "stop")))
    except ModelFailed:
        """Refused in order."""


@pytest.mark.parametrize("build", BUILDERS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(error=JSON, status=st.sampled_from([200, 400, 429, 500, 529]))
def test_errors_of_any_shape_never_crash_us(build: Build, error: object, status: int) -> None:
    if status == 200:
        response = build_stream({"type": "error", "error": error})
    else:
        response = httpx2.Response(status, text=json.dumps({"type": "error", "error": error}))

    with pytest.raises(ModelFailed):
        ask(build, response)


@pytest.mark.parametrize(("build", "build_events"), PROVIDERS, ids=NAMES)
def test_a_count_beyond_the_ledger_leaves_the_answer_whole(
    build: Build, build_events: Callable[..., list[dict[str, Any]]]
) -> None:
    assert ask(build, build_stream(*build_events("Hello", 2**63, "stop"))) == "Hello"


@pytest.mark.parametrize(("build", "build_events"), PROVIDERS, ids=NAMES)
@pytest.mark.parametrize(("tokens", "is_estimated"), [(350_000, False), (1_000_000_000, True)])
async def test_a_count_far_beyond_the_context_is_estimated_instead(
    build: Build, build_events: Callable[..., list[dict[str, Any]]], tokens: int, is_estimated: bool
) -> None:
    response = build_stream(*build_events("Hello", tokens, "stop"))

    pieces = await collect_pieces(build(httpx2.MockTransport(lambda _: response)), build_request())

    usage = pieces[-1].usage  # type: ignore[union-attr]
    assert usage.estimated == is_estimated
    assert (usage.input_tokens == tokens) != is_estimated


@pytest.mark.parametrize(("build", "build_events"), PROVIDERS, ids=NAMES)
def test_a_character_split_over_two_deltas_arrives_whole(
    build: Build, build_events: Callable[..., list[dict[str, Any]]]
) -> None:
    first, second = (build_events(half, 1, None) for half in ("a\ud83d", "\ude00b"))

    assert ask(build, build_stream(*first, *second, *build_events("", 1, "stop"))) == "a\U0001f600b"


@pytest.mark.parametrize(("build", "build_events"), PROVIDERS, ids=NAMES)
async def test_the_output_limit_of_a_model_is_learned_from_a_refusal(
    build: Build, build_events: Callable[..., list[dict[str, Any]]]
) -> None:
    sent: list[int] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        sent.append(next(body[name] for name in ("max_tokens", "max_output_tokens") if name in body))
        if sent[-1] <= 4_096:
            return build_stream(*build_events("Hello", 5, "stop"))
        words = f"max_tokens: {sent[-1]} > 4096, which is the maximum allowed number of output tokens for m-3-20240307"
        return httpx2.Response(400, json={"type": "error", "error": {"type": "bad_request", "message": words}})

    model = build(httpx2.MockTransport(answer))
    replies = [
        await collect_pieces(model, replace(build_request(), max_output_tokens=tokens)) for tokens in (8_192, 8_192, 99)
    ]

    assert [join_text(pieces) for pieces in replies] == ["Hello"] * 3
    assert sent == [8_192, 4_096, 4_096, 99]


@pytest.mark.parametrize("build", BUILDERS)
async def test_a_server_that_refuses_every_limit_is_not_asked_forever(build: Build) -> None:
    sent: list[int] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        sent.append(next(body[name] for name in ("max_tokens", "max_output_tokens") if name in body))
        return httpx2.Response(400, json={"error": {"message": f"max_tokens must be below {sent[-1] - 1}"}})

    with pytest.raises(ModelFailed):
        await collect_pieces(build(httpx2.MockTransport(answer)), replace(build_request(), max_output_tokens=8_192))

    assert len(sent) == MAX_FORMS


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("content_type", ["application/json", "text/html"])
def test_an_answer_that_is_no_stream_points_to_the_base_url(build: Build, content_type: str) -> None:
    response = httpx2.Response(200, headers={"content-type": content_type}, text='{"choices": []}')

    with pytest.raises(ModelFailed, match="base URL may be wrong") as raised:
        ask(build, response)

    assert (raised.value.retryable, raised.value.likely_permanent) == (True, True)


async def send(body: str) -> AsyncIterator[bytes]:
    """The body in two chunks, as a server would send it."""
    yield body[:10].encode()
    yield body[10:].encode()


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"type": "overloaded_error", "message": "Busy"}, "overloaded", True),
        ({"code": 503, "message": "Busy"}, "overloaded", True),
        ({"type": "authentication_error", "message": "No"}, "unauthorized", False),
    ],
)
def test_an_error_sent_with_status_200_is_that_error(
    build: Build, error: dict[str, Any], kind: str, retryable: bool
) -> None:
    headers = {"content-type": "application/json", "retry-after": "7"}
    response = httpx2.Response(200, headers=headers, content=send(json.dumps({"error": error})))

    with pytest.raises(ModelFailed) as raised:
        ask(build, response)

    failure = raised.value
    assert (failure.kind, failure.retryable, failure.likely_permanent) == (kind, retryable, False)
    assert failure.retry_after_s == 7


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("body", ['{"error": "Not found"}', '{"error": {"code": "mystery"}}', "[" * 30_000, "not JSON"])
def test_an_unknown_error_with_status_200_may_be_a_wrong_address(build: Build, body: str) -> None:
    headers = {"content-type": "application/json; charset=utf-8", "retry-after": "7"}

    with pytest.raises(ModelFailed, match="base URL may be wrong") as raised:
        ask(build, httpx2.Response(200, headers=headers, content=send(body)))

    assert (raised.value.likely_permanent, raised.value.retry_after_s) == (True, 7)


NO_DATA = [b"retry: 3000", b"id: 7", b"event: ping", b": ping", b"data:", b"data", b"id: 8\nretry: 1\n: x", b"", b"\n"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("chunk_bytes", [1, 2, 7, 100_000])
@pytest.mark.parametrize(("build", "build_events"), PROVIDERS, ids=NAMES)
def test_events_without_data_are_no_part_of_a_reply(
    build: Build, build_events: Callable[..., list[dict[str, Any]]], chunk_bytes: int, end: bytes
) -> None:
    events = [f"data: {json.dumps(event)}".encode() for event in build_events("Hello", 5, "stop")]
    named = [b"event: " + json.loads(event[6:]).get("type", "x").encode() + b"\nid: 1\n" + event for event in events]
    between = [*NO_DATA, *(piece for event in named for piece in (event, *NO_DATA))]
    raw = b"".join(piece + b"\n\n" for piece in between).replace(b"\n", end)

    async def body() -> AsyncIterator[bytes]:
        for at in range(0, len(raw), chunk_bytes):
            yield raw[at : at + chunk_bytes]

    headers = {"content-type": "text/event-stream; charset=utf-8"}
    assert ask(build, httpx2.Response(200, headers=headers, content=body())) == "Hello"


class Endless(httpx2.AsyncByteStream):
    """Sends the same chunk until it is closed; counts what was read."""

    def __init__(self, chunk: bytes, *, begin: bytes = b"", limit_bytes: int = 64 * MAX_EVENT_BYTES) -> None:
        self.taken = 0
        self._chunk = chunk
        self._begin = begin
        self._limit_bytes = limit_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._begin or self._chunk
        while self.taken < self._limit_bytes:
            self.taken += len(self._chunk)
            yield self._chunk


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("begin", [b"data: {", b": comment", b"data: x\ndata: "])
def test_an_event_without_an_end_is_given_up_while_it_is_small(build: Build, begin: bytes) -> None:
    body = Endless(b"x" * 65_536, begin=begin)

    with pytest.raises(ModelFailed, match="without the end of an event"):
        ask(build, httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=body))

    assert body.taken <= MAX_EVENT_BYTES + 2 * 65_536


@pytest.mark.parametrize("build", BUILDERS)
def test_a_compressed_bomb_is_given_up_and_never_holds_the_event_loop(build: Build) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join([packer.compress(b"x" * 2**20) for _ in range(256)]) + packer.flush()
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}

    async def run() -> float:
        transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, stream=Endless(bomb)))
        async with watch_loop() as watch:
            with pytest.raises(ModelFailed, match="without the end of an event"):
                await collect_pieces(build(transport), build_request())
        return watch.longest_s

    assert asyncio.run(run()) < 0.3  # some milliseconds on an idle machine; seconds where a chunk is unpacked at once


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("content_type", ["text/event-stream", "text/plain"])
@pytest.mark.parametrize(
    "chunks",
    [
        [b"event: x\ndata: {}\n\n" * 8_000],
        [b"event: x\ndata: {}\n\n"] * 8_000,
        [b": ping\n\n" * 100_000],
        [b":"] * 100_000,
    ],
    ids=["events", "chunks", "comments", "bytes"],
)
async def test_a_flood_without_content_leaves_turns_of_the_loop_to_others(
    build: Build, content_type: str, chunks: list[bytes]
) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    response = httpx2.Response(200, headers={"content-type": content_type}, content=body())
    counting = asyncio.create_task(count_turns())

    with pytest.raises(ModelFailed):
        await collect_pieces(build(httpx2.MockTransport(lambda _: response)), build_request())

    counting.cancel()
    assert turns >= 8


@pytest.mark.parametrize("build", BUILDERS)
def test_too_many_events_without_content_fail(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat_proc.models.streams.MAX_EMPTY_EVENTS", 100)
    body = Endless(b"event: x\ndata: {}\n\n" * 10)

    with pytest.raises(ModelFailed, match="more than 100 events without content") as raised:
        ask(build, httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=body))

    assert not raised.value.retryable


ENDED = [
    (build_openai, build_openai_events("Hello", 5, "stop")),
    (build_responses, build_responses_events("Hello", 5, "stop")),
    (build_anthropic, build_anthropic_events("Hello", 5, "end_turn")),
    (build_anthropic, [*build_anthropic_events("Hello", 5, "end_turn"), {"type": "message_stop"}]),
]
"""Replies up to their finish reason, or beyond it."""


class NeverClosed(httpx2.AsyncByteStream):
    """Sends a reply, and then what `go_on` does."""

    def __init__(self, events: list[dict[str, Any]], go_on: Callable[[], AsyncIterator[bytes]]) -> None:
        self.is_closed = False
        self._content = build_stream(*events).content
        self._go_on = go_on

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._content
        async for chunk in self._go_on():
            yield chunk

    async def aclose(self) -> None:
        self.is_closed = True


async def stay_silent() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def send_comments() -> AsyncIterator[bytes]:
    while True:
        yield b": ping\n\n"
        await asyncio.sleep(0.01)


async def send_pings() -> AsyncIterator[bytes]:
    while True:
        yield b'event: x\ndata: {"type": "x"}\n\n' * 10
        await asyncio.sleep(0.01)


async def flood() -> AsyncIterator[bytes]:
    while True:
        yield b'event: x\ndata: {"type": "x"}\n\n' * 1_000


async def lose_the_connection() -> AsyncIterator[bytes]:
    raise httpx2.ReadError("reset")
    yield b""


async def send_garbage() -> AsyncIterator[bytes]:
    yield b"event: message_stop\ndata: {not JSON\n\n"


@pytest.mark.parametrize("go_on", [stay_silent, send_comments, send_pings, flood, lose_the_connection, send_garbage])
@pytest.mark.parametrize(("build", "events"), ENDED)
async def test_a_reply_ends_although_the_server_does_not_end_it(
    build: Build,
    events: list[dict[str, Any]],
    go_on: Callable[[], AsyncIterator[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for adapter in ("openai", "anthropic"):
        monkeypatch.setattr(f"chat_proc.models.{adapter}.USAGE_WAIT_S", 0.2)
    body = NeverClosed(events, go_on)
    response = httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=body)

    async with asyncio.timeout(10):
        pieces = await collect_pieces(build(httpx2.MockTransport(lambda _: response)), build_request())

    assert join_text(pieces) == "Hello"
    assert pieces[-1].usage.input_tokens == 5  # type: ignore[union-attr]
    assert body.is_closed


async def test_usage_and_text_soon_after_the_finish_reason_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat_proc.models.openai.USAGE_WAIT_S", 0.5)

    async def go_on() -> AsyncIterator[bytes]:
        for text in (" and", " more"):
            await asyncio.sleep(0.3)
            yield build_stream(*build_openai_events(text, None, None)).content
        await asyncio.sleep(0.3)
        yield build_stream({"id": "c", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}).content
        await asyncio.Event().wait()

    body = NeverClosed(build_openai_events("Hello", None, "stop"), go_on)
    response = httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=body)

    pieces = await collect_pieces(build_openai(httpx2.MockTransport(lambda _: response)), build_request())

    assert join_text(pieces) == "Hello and more"
    assert pieces[-1].usage.input_tokens == 7  # type: ignore[union-attr]


EMPTY = b'event: x\ndata: {"type": "x"}\n\n'
HASTY = ModelRetryLimits(first_token_timeout_s=0.3, idle_timeout_s=0.3)


@pytest.mark.parametrize(("build", "build_events"), PROVIDERS, ids=NAMES)
async def test_a_server_that_shows_that_it_is_at_work_is_waited_for(
    build: Build, build_events: Callable[..., list[dict[str, Any]]]
) -> None:
    async def send() -> AsyncIterator[bytes]:
        for sign, events in (
            (b": PROCESSING\n\n", build_events("Hel", 5, None)),
            (EMPTY, build_events("lo", 5, "stop")),
        ):
            for _ in range(20):
                yield sign
                await asyncio.sleep(0.03)
            yield build_stream(*events).content

    body = NeverClosed([], send)
    slow = httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=body)
    replies = iter([build_stream(*build_events("Hello", 5, "stop")), slow])
    model = build(httpx2.MockTransport(lambda _: next(replies)))
    await collect_pieces(model, build_request())  # the first request of an SDK takes longer

    pieces = await collect_pieces(RetryingModel(model, limits=HASTY), build_request())

    assert join_text(pieces) == "Hello"
    assert not [piece for piece in pieces if isinstance(piece, ModelRetry)]


@pytest.mark.parametrize(("go_on", "says"), [(send_comments, "took too long"), (stay_silent, r"silent for 0\.3 s")])
async def test_a_server_that_never_begins_to_reply_is_given_up(
    go_on: Callable[[], AsyncIterator[bytes]], says: str
) -> None:
    body = NeverClosed([], go_on)
    response = httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=body)
    limits = replace(HASTY, reply_timeout_s=0.5, max_timeouts=1)
    model = RetryingModel(build_openai(httpx2.MockTransport(lambda _: response)), limits=limits)

    with pytest.raises(ModelFailed, match=says) as raised:
        await collect_pieces(model, build_request())

    assert (raised.value.kind, raised.value.partial) == ("timeout", False)
    assert body.is_closed


@pytest.mark.parametrize(("build", "events"), ENDED[:1])
async def test_a_cancellation_after_the_finish_reason_is_not_lost(build: Build, events: list[dict[str, Any]]) -> None:
    waits = asyncio.Event()

    async def fail_when_cancelled() -> AsyncIterator[bytes]:
        waits.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise httpx2.ReadError("closed") from error
        yield b""

    body = NeverClosed(events, fail_when_cancelled)
    response = httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=body)
    transport = httpx2.MockTransport(lambda _: response)
    asking = asyncio.create_task(collect_pieces(build(transport), build_request()))
    await waits.wait()

    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking
    assert body.is_closed


@pytest.mark.parametrize(("build", "build_events"), PROVIDERS, ids=NAMES)
@pytest.mark.parametrize("chunk_bytes", [1, 100_000])
def test_bytes_that_are_no_text_are_replaced(
    build: Build, build_events: Callable[..., list[dict[str, Any]]], chunk_bytes: int
) -> None:
    raw = build_stream(*build_events("A?B \u00e9\U0001f600", 5, "stop")).content
    raw = raw.replace(b"A?B", b"A\xff\xf0\x9fB").replace(b"\\u00e9", "\u00e9".encode())

    async def body() -> AsyncIterator[bytes]:
        for at in range(0, len(raw), chunk_bytes):
            yield raw[at : at + chunk_bytes]

    response = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body())

    assert ask(build, response) == "A\ufffd\ufffdB \u00e9\U0001f600"


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("line", [b"a\n", b":\r", b"data\r\n"])
def test_an_event_with_too_many_lines_is_rejected_early(build: Build, line: bytes) -> None:
    body = Endless(line * (65_536 // len(line)))

    with pytest.raises(ModelFailed, match="too many lines without the end of an event"):
        ask(build, httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=body))

    assert body.taken <= 4 * 65_536


@pytest.mark.parametrize("build", BUILDERS)
def test_what_follows_a_compressed_reply_is_not_collected(build: Build) -> None:
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    body = Endless(b"x" * 65_536, begin=gzip.compress(b": nothing\n\n"))

    with pytest.raises(ModelFailed):
        ask(build, httpx2.Response(200, headers=headers, stream=body))

    assert body.taken == 0


@pytest.mark.parametrize(
    ("build", "events"),
    [
        (build_openai, build_openai_events("Hello there.", 5, "stop")),
        (build_responses, build_responses_events("Hello there.", 5, "stop")),
        (build_anthropic, build_anthropic_events("Hello there.", 5, "end_turn")),
    ],
)
def test_a_reply_that_a_gateway_compressed_is_read(build: Build, events: list[dict[str, Any]]) -> None:
    packed = gzip.compress(build_stream(*events).content)
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}

    async def body() -> AsyncIterator[bytes]:
        for at in range(0, len(packed), 7):
            yield packed[at : at + 7]

    assert ask(build, httpx2.Response(200, headers=headers, content=body())) == "Hello there."


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize(("encoding", "body"), [("br", b"data: x\n\n"), ("gzip", b"no gzip")])
def test_a_reply_that_can_not_be_unpacked_fails(build: Build, encoding: str, body: bytes) -> None:
    headers = {"content-type": "text/event-stream", "content-encoding": encoding}

    with pytest.raises(ModelFailed) as raised:
        ask(build, httpx2.Response(200, headers=headers, stream=Endless(body, limit_bytes=0)))

    assert raised.value.kind == "invalid_reply"


@pytest.mark.parametrize("build", BUILDERS)
def test_an_error_without_an_end_is_read_in_part_and_keeps_its_status(build: Build) -> None:
    body = Endless(b"e" * 65_536)

    with pytest.raises(ModelFailed, match="rejected the request") as raised:
        ask(build, httpx2.Response(400, stream=body))

    assert raised.value.kind == "bad_request"
    assert body.taken <= MAX_ERROR_BYTES + 65_536


@pytest.mark.parametrize(
    ("build_model", "variable", "path"),
    [
        (build_openai_model, "OPENAI_BASE_URL", "/v1"),
        (build_responses_model, "OPENAI_BASE_URL", "/v1"),
        (build_anthropic_model, "ANTHROPIC_BASE_URL", ""),
    ],
)
async def test_the_models_that_workers_use_are_bounded(
    build_model: Callable[[ModelChoice, ModelCards, None], Any],
    variable: str,
    path: str,
    provider: WireProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, provider.url + path)
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    provider.answer(Answer([b"x" * 2**20] * 6, headers={"Content-Type": "text/event-stream"}))
    model = build_model(ModelChoice("p", "m", "test"), ModelCards(), None)

    with pytest.raises(ModelFailed, match="without the end of an event"):
        await collect_pieces(model, build_request())

    assert provider.received[0].headers["accept-encoding"] == "identity"
    await model.aclose()
