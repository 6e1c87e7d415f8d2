"""The model server of coding agents, between real clients on a socket and a provider on the wire."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from helpers.provider import Answer, WireProvider, build_openai_events
from helpers.waiting import wait_until
from prometheus_client import REGISTRY
from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

from chat_proc.agent.kit import TurnLimits
from chat_proc.catalog.tool import ToolCall, ToolOutcome
from chat_proc.model_gateway.exchanges import Exchange, read_record
from chat_proc.model_gateway.gateway import LIMITS, GatewayLimits, GatewayModel, GatewayTurn, open_gateways
from chat_proc.models.endpoints import Endpoint
from chat_proc.models.providers import BadModelSetting
from chat_proc.models.roles import ModelChoice
from chat_proc.models.upstreams import find_upstream
from everturn.core.logging import Redactor
from everturn.models.port import ModelTraits, Price
from everturn_testing.turns.live_turn import RecordingTurn

KEY = "operator-secret-key"
AGENT = {
    "Authorization": "Bearer agents-own-key",
    "X-Api-Key": "agents-own-key",
    "Cookie": "session=agent",
    "User-Agent": "agent/1.0",
    "X-Stainless-Arch": "x64",
}
"""What the agent sends of its own, and nobody else may read."""
WITHIN_S = 20
ANTHROPIC_TEXT = "Hallo Wörld"


def build_anthropic_events(*texts: str, tokens: int = 5) -> tuple[str, ...]:
    usage = {"input_tokens": 100, "cache_read_input_tokens": 1_000, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}} for text in texts
    ]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *deltas,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": tokens}},
        {"type": "message_stop"},
    ]
    return tuple(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def build_responses_events(text: str) -> tuple[str, ...]:
    usage = {"input_tokens": 1_000, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": 5}
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "i", "role": "assistant", "status": "completed", "content": [part]}
    events: tuple[dict[str, Any], ...] = (
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text},
        {"type": "response.completed", "response": {"id": "r", "object": "response", "output": [item], "usage": usage}},
    )
    return tuple(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


STREAMS: Mapping[str, tuple[str, str, dict[str, Any], tuple[str, ...], int]] = {
    "messages": (
        "anthropic",
        "/v1/messages?beta=true",
        {"max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]},
        build_anthropic_events(ANTHROPIC_TEXT),
        1_100,
    ),
    "chat": (
        "openai",
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "hi"}]},
        build_openai_events("Hallo"),
        1_000,
    ),
    "responses": ("openai", "/v1/responses", {"input": "hi"}, build_responses_events("Hallo"), 1_000),
}
"""By API: the protocol, the path, a request, the events of its reply, and the tokens that the reply counts as input."""


class Agent:
    """An HTTP client of a gateway, and what the turn and the gateway know of it."""

    def __init__(self, turn: RecordingTurn, url: str) -> None:
        self.turn = turn
        self.url = url
        self.http = httpx2.AsyncClient(base_url=url, headers=AGENT, timeout=WITHIN_S)

    async def ask(self, path: str = "/v1/messages", **body: Any) -> httpx2.Response:
        usual = {"max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
        return await self.http.post(path, json={"model": "everturn", **usual, **body})

    async def wait_record(self) -> Exchange:
        await wait_until(lambda: bool(self.turn.exchanges))
        return read_record(self.turn.exchanges[-1])


def build_model(
    url: str, protocol: str = "anthropic", *, name: str = "real-model", role: str = "coding", most: int | None = None
) -> GatewayModel:
    base = url if protocol == "anthropic" else f"{url}/v1"
    endpoints = {"local": Endpoint(protocol=protocol, base_url=base, key_env="LOCAL_KEY")}
    upstream = find_upstream(ModelChoice("local", name, ""), {"LOCAL_KEY": KEY}, endpoints)
    price = Price(input=1.0, output=2.0, cache_read=0.1)
    traits = ModelTraits(name, 100_000, False, False, provider=protocol, max_output_tokens=most, price=price)
    return GatewayModel(role, traits, upstream)


@asynccontextmanager
async def open_agent(
    main: GatewayModel,
    small: GatewayModel | None = None,
    *,
    limits: GatewayLimits = LIMITS,
    tokens: int = 8_192,
    turn: GatewayTurn | None = None,
) -> AsyncGenerator[Agent]:
    recording = RecordingTurn()
    serving: set[asyncio.Task[None]] = set()
    async with open_gateways({}, {}, redactor=Redactor([KEY]), limits=limits) as gateways:
        gateway = gateways.open(main, small, turn or recording, run="exec_1", max_output_tokens=tokens)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(gateway.serve(reader, writer))
            serving.add(task)
            await asyncio.wait({task})

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        agent = Agent(recording, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with agent.http:
            yield agent
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def count_failures(kind: str) -> float:
    labels = {"model": "real-model", "kind": kind}
    return REGISTRY.get_sample_value("everturn_model_calls_failed_total", labels) or 0.0


@pytest.mark.parametrize("api", STREAMS)
async def test_a_stream_passes_byte_for_byte_and_is_metered_and_recorded(provider: WireProvider, api: str) -> None:
    protocol, path, body, events, tokens = STREAMS[api]
    provider.answer_bytes("".join(events).encode())
    more = {"unknown_field": {"ä": [1.0, None, 12345678901234567890]}}

    async with open_agent(build_model(provider.url, protocol)) as agent:
        reply = await agent.http.post(path, json={"model": "gpt-or-claude", "stream": True, **body, **more})
        kept = await agent.wait_record()

    assert (reply.status_code, reply.content) == (200, "".join(events).encode())
    assert reply.headers["content-type"] == "text/event-stream"
    sent = provider.received[0]
    assert sent.path == path
    assert sent.body["model"] == "real-model"
    assert sent.body["unknown_field"] == more["unknown_field"]
    assert sent.body.get("stream_options") == ({"include_usage": True} if api == "chat" else None)
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert not [value for value in AGENT.values() if value in str(sent.headers)]
    [used] = agent.turn.recorded
    assert (used.model, used.role, used.estimated) == ("real-model", "coding", False)
    assert (used.input_tokens, used.output_tokens) == (tokens, 5)
    assert used.cost_known and used.cost_usd > 0
    assert (kept.request, kept.reply) == (sent.raw, reply.content)
    head = kept.head
    assert (head.asked, head.model, head.status, head.end) == ("gpt-or-claude", "real-model", 200, "complete")
    assert head.usage == used and head.run.startswith("exec_1.")
    assert KEY.encode() not in b"".join((kept.request, kept.reply, head.model_dump_json().encode()))


@pytest.mark.parametrize(
    ("api", "reply", "counts"),
    [
        ("messages", {"type": "message", "usage": {"input_tokens": 7, "output_tokens": 3}}, (7, 3)),
        ("chat", {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}, (7, 3)),
        ("responses", {"object": "response", "usage": {"input_tokens": 7, "output_tokens": 3}}, (7, 3)),
    ],
)
async def test_a_reply_in_one_piece_is_metered(
    provider: WireProvider, api: str, reply: dict[str, Any], counts: tuple[int, int]
) -> None:
    protocol, path, body, *_ = STREAMS[api]
    forged = {"content": [{"type": "tool_use", "input": {"usage": {"input_tokens": 0, "output_tokens": 0}}}], **reply}
    provider.answer(Answer([json.dumps(forged).encode()], headers={"content-type": "application/json"}))

    async with open_agent(build_model(provider.url, protocol)) as agent:
        received = await agent.http.post(path, json={"model": "x", **body})

    assert received.json() == forged
    [used] = agent.turn.recorded
    assert (used.input_tokens, used.output_tokens, used.estimated) == (*counts, False)
    assert "stream_options" not in provider.received[0].body


async def test_the_sdks_of_the_providers_work_with_it(provider: WireProvider) -> None:
    provider.answer_events(*build_anthropic_events(ANTHROPIC_TEXT))
    async with open_agent(build_model(provider.url)) as agent:
        claude = anthropic.AsyncAnthropic(api_key="none", base_url=agent.url, max_retries=0)
        async with claude.messages.stream(
            model="claude-haiku-4-5", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        ) as stream:
            assert await stream.get_final_text() == ANTHROPIC_TEXT
        assert [model.id async for model in await claude.models.list()] == ["everturn"]
        agent.turn.cap = "The turn has reached the limit of 10.00 USD."
        with pytest.raises(anthropic.PermissionDeniedError, match=r"limit of 10\.00 USD"):
            await claude.messages.create(model="x", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
        await claude.close()

    provider.forget()
    provider.answer_events(*build_openai_events("Hallo"))
    async with open_agent(build_model(provider.url, "openai"), build_model(provider.url, "openai")) as agent:
        gpt = openai.AsyncOpenAI(api_key="none", base_url=f"{agent.url}/v1", max_retries=0)
        chunks = await gpt.chat.completions.create(
            model="gpt-5", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])
        assert text == "Hallo"
        assert [model.id async for model in gpt.models.list()] == ["everturn", "everturn-small"]
        assert (await gpt.models.retrieve("everturn-small")).id == "everturn-small"
        with pytest.raises(openai.NotFoundError):
            await gpt.models.retrieve("gpt-5")
        with pytest.raises(openai.NotFoundError, match="There is no POST /v1/embeddings here"):
            await gpt.embeddings.create(model="x", input="hi")
        await gpt.close()


async def test_names_of_small_models_get_the_small_one_if_there_is_one(provider: WireProvider) -> None:
    provider.answer_events(*build_anthropic_events("hi"))
    small = build_model(provider.url, name="real-small", most=20)
    asked = ("everturn", "claude-opus-4-5", "gemini-pro", "everturn-small", "claude-3-5-haiku-latest", "gpt-5-mini")

    async with open_agent(build_model(provider.url), small) as agent:
        for name in asked:
            assert (await agent.ask(model=name)).status_code == 200

    sent = [received.body["model"] for received in provider.received]
    assert sent == ["real-model"] * 3 + ["real-small"] * 3
    assert [received.body["max_tokens"] for received in provider.received] == [50] * 3 + [20] * 3
    assert [used.model for used in agent.turn.recorded] == sent


async def test_replies_are_limited_by_the_bundle_and_their_thinking_fits(provider: WireProvider) -> None:
    provider.answer_events(*build_anthropic_events("hi"))
    thinking = {"type": "enabled", "budget_tokens": 31_999}

    async with open_agent(build_model(provider.url), tokens=2_000) as agent:
        await agent.ask(max_tokens=32_000, thinking=thinking)
    async with open_agent(build_model(provider.url), tokens=500) as agent:
        await agent.ask(max_tokens=32_000, thinking=thinking)
    async with open_agent(build_model(provider.url, "openai"), tokens=500) as agent:
        await agent.http.post("/v1/chat/completions", json={"model": "x", "messages": []})
        await agent.http.post("/v1/responses", json={"model": "x", "input": "hi", "max_output_tokens": 9_000})

    first, second, chat, responses = (received.body for received in provider.received)
    assert (first["max_tokens"], first["thinking"]) == (2_000, {"type": "enabled", "budget_tokens": 1_999})
    assert (second["max_tokens"], second["thinking"]) == (500, {"type": "disabled"})
    assert (chat["max_tokens"], responses["max_output_tokens"]) == (500, 500)
    assert ("store" in chat, responses["store"]) == (False, False)


async def test_only_the_versions_of_the_api_pass_of_the_agents_headers(provider: WireProvider) -> None:
    provider.answer_events(*build_anthropic_events("hi"))
    versions = {"anthropic-beta": "context-1m-2025-08-07,thinking", "anthropic-version": "2024-01-01"}

    async with open_agent(build_model(provider.url)) as agent:
        await agent.http.post("/v1/messages?key=x", json={"model": "x", "max_tokens": 1, "messages": []})
        await agent.http.post(
            "/v1/messages", json={"model": "x", "max_tokens": 1, "messages": []}, headers={**versions, "X-Other": "x"}
        )

    plain, versioned = provider.received
    assert plain.path == "/v1/messages"
    assert plain.headers["anthropic-version"] == "2023-06-01" and "anthropic-beta" not in plain.headers
    assert {name: versioned.headers[name] for name in versions} == versions
    assert "x-other" not in versioned.headers


async def test_counting_tokens_costs_nothing(provider: WireProvider) -> None:
    provider.answer(Answer([b'{"input_tokens": 12}'], headers={"content-type": "application/json"}))

    async with open_agent(build_model(provider.url)) as agent:
        counted = await agent.http.post("/v1/messages/count_tokens", json={"model": "x", "messages": []})
        await agent.wait_record()

    assert counted.json() == {"input_tokens": 12}
    assert provider.received[0].path == "/v1/messages/count_tokens"
    assert provider.received[0].body == {"model": "real-model", "messages": []}
    assert agent.turn.recorded == []


URL_IMAGE = {"type": "image", "source": {"type": "url", "url": "https://evil.org/?secret"}}


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        (
            "/v1/chat/completions",
            {},
            400,
            "OpenAI's format, and the model of the role coding speaks Anthropic's",
        ),
        ("/v1/messages", {"model": ""}, 400, "`model` must be the name"),
        ("/v1/messages", {"max_tokens": "many"}, 400, "`max_tokens` must be a number"),
        ("/v1/messages", {"mcp_servers": [{"url": "https://evil.org"}]}, 400, "`mcp_servers` can't be used"),
        ("/v1/messages", {"tools": [{"type": "web_fetch_20250910", "name": "f"}]}, 400, '"web_fetch_20250910" can\'t'),
        ("/v1/messages", {"service_tier": "priority"}, 400, "`service_tier` can't have this value"),
        ("/v1/messages", {"messages": [{"role": "user", "content": [URL_IMAGE]}]}, 400, "as base64"),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [URL_IMAGE]}]}]},
            400,
            "as base64",
        ),
        ("/v1/complete", {}, 404, "There is no POST /v1/complete here"),
    ],
)
async def test_what_is_refused_does_not_reach_the_provider(
    provider: WireProvider, path: str, body: dict[str, Any], status: int, said: str
) -> None:
    async with open_agent(build_model(provider.url)) as agent:
        refused = await agent.ask(path, **body)
        again = await agent.http.get("/v1/models")

    assert refused.status_code == status and again.status_code == 200
    assert said in refused.json()["error"]["message"]
    assert refused.headers["x-should-retry"] == "false"
    assert not provider.received and not agent.turn.recorded and not agent.turn.exchanges


@pytest.mark.parametrize(
    "body",
    [
        {"background": True},
        {"tools": [{"type": "mcp", "server_url": "https://evil.org"}]},
        {"prompt": {"id": "pmpt_1"}},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://evil.org/a"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://evil.org/a"}]}]},
        {"input": [{"type": "function_call_output", "output": [{"type": "input_image", "file_id": "file-1"}]}]},
    ],
)
async def test_openai_reaches_no_other_hosts_for_an_agent(provider: WireProvider, body: dict[str, Any]) -> None:
    async with open_agent(build_model(provider.url, "openai")) as agent:
        refused = await agent.http.post("/v1/responses", json={"model": "x", "input": "hi", **body})

    assert refused.status_code == 400 and refused.json()["error"]["type"] == "invalid_request_error"
    assert not provider.received


@pytest.mark.parametrize(
    "body", [b"", b"[1]", b'{"model": "x"', b'{"model": NaN}', b"\xff", b'{"a":' * 5_000, b'{"model":"x"}' * 2]
)
async def test_broken_json_is_refused(provider: WireProvider, body: bytes) -> None:
    async with open_agent(build_model(provider.url)) as agent:
        refused = await agent.http.post("/v1/messages", content=body)
        assert (await agent.http.head("/")).status_code == 200

    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_a_lone_surrogate_and_a_large_body_arrive_as_they_are(provider: WireProvider) -> None:
    provider.answer_events(*build_anthropic_events("hi"))
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 3_000_000}}
    messages = [{"role": "user", "content": [image, {"type": "text", "text": "x\ud800" + "ä\n" * 1_000}] * 2}]

    async with open_agent(build_model(provider.url)) as agent:
        await agent.http.post("/v1/messages", content=json.dumps({"model": "x", "max_tokens": 5, "messages": messages}))
        kept = await agent.wait_record()

    assert provider.received[0].body["messages"] == messages
    assert kept.request == provider.received[0].raw


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", 431),
        (b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 40000000\r\n\r\n", 413),
        (b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Encoding: gzip\r\n\r\n{}", 415),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
    ],
)
async def test_requests_that_are_too_large_or_no_http_are_refused(
    provider: WireProvider, request_bytes: bytes, status: int
) -> None:
    async with open_agent(build_model(provider.url)) as agent:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(agent.url.rpartition(":")[2]))
        writer.write(request_bytes)
        if status != 415:
            writer.write_eof()
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()

    assert head.startswith(b"HTTP/1.1 %d" % status)


async def test_a_chunked_body_is_limited_too_and_expected_ones_are_asked_for(provider: WireProvider) -> None:
    limits = GatewayLimits(body_bytes=1_000)

    async def send():
        for _ in range(40):
            yield b" " * 100

    async with open_agent(build_model(provider.url), limits=limits) as agent:
        refused = await agent.http.post("/v1/messages", content=send())
        reader, writer = await asyncio.open_connection("127.0.0.1", int(agent.url.rpartition(":")[2]))
        writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"{}")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 400")
        writer.close()

    assert refused.status_code == 413


async def test_requests_that_are_sent_at_once_are_answered_in_order(provider: WireProvider) -> None:
    provider.answer_events(*build_anthropic_events("hi"))
    body = json.dumps({"model": "x", "max_tokens": 5, "stream": True, "messages": []}).encode()
    post = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async with open_agent(build_model(provider.url)) as agent:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(agent.url.rpartition(":")[2]))
        writer.write(post + b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" + post + post.partition(b"\r\n\r\n")[0])
        await wait_until(lambda: len(provider.received) == 2)
        writer.write(b"\r\nConnection: close\r\n\r\n" + body)
        answers = await asyncio.wait_for(reader.read(), WITHIN_S)
        writer.close()

    assert answers.count(b"HTTP/1.1 200") == 4 and answers.count(b"message_stop") == 6
    assert len(agent.turn.recorded) == 3


async def test_a_slow_agent_gets_the_end_of_a_reply(provider: WireProvider) -> None:
    text = "x" * 4_000_000
    provider.answer_events(*build_anthropic_events(text))
    body = json.dumps({"model": "x", "max_tokens": 5, "stream": True, "messages": []}).encode()

    async with open_agent(build_model(provider.url)) as agent:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(agent.url.rpartition(":")[2]), limit=1_000)
        head = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(1.5)
        received = await asyncio.wait_for(reader.read(), WITHIN_S)
        writer.close()

    assert received.endswith(b"0\r\n\r\n") and len(received) > len(text)


async def test_a_run_has_limits_for_its_requests_and_the_bodies_that_are_open(provider: WireProvider) -> None:
    provider.answer_events(*build_anthropic_events("hi"))
    limits = GatewayLimits(requests=2, held_bytes=1_000)

    async with open_agent(build_model(provider.url), limits=limits) as agent:
        large = await agent.ask(metadata={"user_id": "x" * 1_000})
        replies = [await agent.ask() for _ in range(3)]

    assert (large.status_code, large.headers["retry-after"]) == (429, "2")
    assert [reply.status_code for reply in replies] == [200, 200, 403]
    assert "2 requests, the limit" in replies[-1].json()["error"]["message"]


@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
async def test_an_error_of_the_provider_passes_without_its_secrets(provider: WireProvider, status: int) -> None:
    error = {"type": "error", "error": {"type": "some_error", "message": f"{KEY} is wrong"}}
    provider.answer_error(status, error, retry_after="7", anthropic_organization_id="org")
    before = count_failures("coding")

    async with open_agent(build_model(provider.url)) as agent:
        reply = await agent.ask(stream=True)
        kept = await agent.wait_record()

    assert (reply.status_code, reply.headers["retry-after"]) == (status, "7")
    assert reply.json()["error"] == {"type": "some_error", "message": "[redacted] is wrong"}
    assert "org" not in reply.headers.values()
    assert agent.turn.recorded == []
    assert (kept.head.status, kept.head.usage, json.loads(kept.reply)) == (status, None, reply.json())
    assert count_failures("coding") == before + 1


async def test_a_redirect_is_not_followed(provider: WireProvider) -> None:
    provider.answer(Answer([], status=307, headers={"location": f"http://user:{KEY}@127.0.0.1:1/"}))

    async with open_agent(build_model(provider.url)) as agent:
        reply = await agent.ask()

    assert reply.status_code == 502 and KEY not in reply.text and "location" not in reply.headers
    assert len(provider.received) == 1


async def test_a_provider_that_can_not_be_reached_is_an_error_to_try_again() -> None:
    async with open_agent(build_model("http://127.0.0.1:1")) as agent:
        reply = await agent.ask()
        kept = await agent.wait_record()

    assert (reply.status_code, reply.headers["retry-after"]) == (502, "2")
    assert reply.json()["error"] == {
        "type": "api_error",
        "message": "The connection to the model's server failed.",
    }
    assert (kept.head.end, kept.head.status, agent.turn.recorded) == ("failed", None, [])


async def test_a_provider_that_hangs_is_given_up(provider: WireProvider) -> None:
    provider.answer_events(hang=True)

    async with open_agent(build_model(provider.url), limits=GatewayLimits(reply_s=0.3)) as agent:
        with contextlib.suppress(httpx2.HTTPError):
            await agent.ask(stream=True)
        await agent.wait_record()

    await asyncio.wait_for(provider.client_left.wait(), WITHIN_S)
    [used] = agent.turn.recorded
    assert used.estimated and used.input_tokens > 0


async def test_a_reply_that_is_cut_stays_cut_and_what_came_is_estimated(provider: WireProvider) -> None:
    provider.answer_events(*build_anthropic_events("x" * 700)[:3], cut=True)

    async with open_agent(build_model(provider.url)) as agent:
        with pytest.raises(httpx2.RemoteProtocolError):
            await agent.ask(stream=True)
        kept = await agent.wait_record()

    [used] = agent.turn.recorded
    assert (used.input_tokens, used.output_tokens, used.estimated) == (1_100, 200, True)
    assert (kept.head.end, kept.head.status) == ("cut", 200)
    assert b"x" * 700 in kept.reply


async def test_an_agent_that_leaves_ends_the_call_and_pays_for_it(provider: WireProvider) -> None:
    provider.answer_events(*build_anthropic_events("x" * 700)[:3], hang=True)

    async with open_agent(build_model(provider.url)) as agent:
        body = {"model": "x", "max_tokens": 50, "stream": True, "messages": []}
        async with agent.http.stream("POST", "/v1/messages", json=body) as reply:
            async for piece in reply.aiter_bytes():
                if b"xxx" in piece:
                    break
        kept = await agent.wait_record()
        await asyncio.wait_for(provider.client_left.wait(), WITHIN_S)

    [used] = agent.turn.recorded
    assert (used.input_tokens, used.output_tokens, used.estimated) == (1_100, 200, True)
    assert kept.head.end == "cancelled"


async def test_the_end_of_a_run_ends_its_calls_and_records_them(provider: WireProvider) -> None:
    provider.answer_events(hang=True)

    async with open_agent(build_model(provider.url)) as agent:
        asking = asyncio.create_task(agent.ask(stream=True))
        await wait_until(lambda: bool(provider.received))

    with pytest.raises(httpx2.HTTPError):
        await asking
    assert [used.estimated for used in agent.turn.recorded] == [True]
    assert read_record(agent.turn.exchanges[0]).head.end == "cancelled"


async def test_a_slow_agent_slows_the_provider_down(provider: WireProvider) -> None:
    sent = 0
    stopped = asyncio.Event()

    async def push(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        with contextlib.suppress(TimeoutError, ConnectionError):
            while sent < 60 << 20:
                writer.write(b": ping\n" * 9_000 + b"\n")
                await asyncio.wait_for(writer.drain(), 1)
                sent += 63_001
        stopped.set()
        writer.close()

    server = await asyncio.start_server(push, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with open_agent(build_model(url)) as agent:
        body = {"model": "x", "max_tokens": 5, "stream": True, "messages": []}
        async with agent.http.stream("POST", "/v1/messages", json=body):
            await asyncio.wait_for(stopped.wait(), WITHIN_S)
    server.close()

    assert 0 < sent < 30 << 20


async def test_eight_requests_of_a_run_are_open_at_once(provider: WireProvider) -> None:
    provider.answer_events(hang=True)

    async with open_agent(build_model(provider.url)) as agent:
        asking = [asyncio.create_task(agent.ask(stream=True)) for _ in range(12)]
        await wait_until(lambda: len(provider.received) == 8)
        await asyncio.sleep(0.2)
        assert len(provider.received) == 8

    await asyncio.gather(*asking, return_exceptions=True)


class AgentTool(DemoTool):
    """Runs an agent that asks its model until it is refused."""

    def __init__(self, model: GatewayModel) -> None:
        super().__init__("demo.code")
        self.model = model
        self.refused = ""

    async def run(self, call: ToolCall) -> ToolOutcome:
        async with open_agent(self.model, turn=call.context.live) as agent:
            for _ in range(9):
                if (reply := await agent.ask()).status_code != 200:
                    self.refused = reply.json()["error"]["message"]
                    break
        return await super().run(call)


async def test_the_calls_of_an_agent_belong_to_the_turn_of_its_tool(provider: WireProvider) -> None:
    provider.answer_events(*build_anthropic_events("hi"))
    tool = AgentTool(build_model(provider.url))
    bench = Bench(call("demo.code", {}), answer("Done."), tools=[tool], limits=TurnLimits(tokens=3_000))

    await bench.say("Write it.")
    await bench.work()

    coded = [used for _, used in bench.platform.usage if used.role == "coding"]
    assert [used.input_tokens for used in coded] == [1_100] * len(coded) and 1 < len(coded) < 9
    assert tool.refused == "The turn has reached the limit of 3,000 tokens."
    kept = {key: data for key, data in bench.objects.stored.items() if ".x." in key}
    assert [read_record(data).head.number for _, data in sorted(kept.items())] == [*range(1, len(coded) + 1)]
    assert await bench.objects.delete_conversation(bench.conversation_id) >= len(kept)


@pytest.mark.parametrize(
    ("full_name", "why"),
    [
        ("bedrock:x", "its requests are signed"),
        ("azure:x", "the name of a deployment"),
        ("vertex:x", "tokens change"),
        ("offline:offline", "the built-in demo"),
        ("scripted:file", "it is a script"),
    ],
)
def test_models_whose_requests_can_not_be_passed_on_are_refused_when_a_gateway_is_built(
    full_name: str, why: str
) -> None:
    provider, _, name = full_name.partition(":")

    with pytest.raises(BadModelSetting, match=why):
        find_upstream(ModelChoice(provider, name, ""), {}, {})


@pytest.mark.parametrize(
    ("provider", "environment", "url", "headers"),
    [
        ("anthropic", {"ANTHROPIC_API_KEY": "k"}, "https://api.anthropic.com", {"X-Api-Key": "k"}),
        (
            "anthropic",
            {"ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_BASE_URL": "http://h/"},
            "http://h",
            {"Authorization": "Bearer t"},
        ),
        (
            "openai",
            {"OPENAI_API_KEY": "k", "OPENAI_ORG_ID": "o"},
            "https://api.openai.com/v1",
            {"Authorization": "Bearer k", "OpenAI-Organization": "o"},
        ),
        ("openai-responses", {"OPENAI_API_KEY": "k"}, "https://api.openai.com/v1", {"Authorization": "Bearer k"}),
    ],
)
def test_the_providers_of_the_sdks_have_their_own_servers_and_keys(
    provider: str, environment: dict[str, str], url: str, headers: dict[str, str]
) -> None:
    found = find_upstream(ModelChoice(provider, "m", ""), environment, {})

    assert (found.base_url, dict(found.headers)) == (url, headers)
    assert "k" not in repr(found).replace("https", "").split("headers")[-1]
