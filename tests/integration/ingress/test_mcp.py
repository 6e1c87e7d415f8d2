"""The limits of clients hold at the MCP endpoint, and its refusals are errors that an MCP client can read."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from helpers.waiting import wait_until

PATH = "/mcp/default/default"
ACCEPT = {"Accept": "application/json, text/event-stream"}


def ask(http: httpx2.AsyncClient, tool: str, **arguments: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    return http.post(PATH, json=body, headers=ACCEPT)


def connect(ingress: Any, user: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=ingress.url, timeout=20, headers={"X-Dev-User": user})


def read_result(answer: httpx2.Response) -> Any:
    """The result of a call, which is sent as JSON or as an event."""
    assert answer.status_code == 200, answer.text
    text = answer.text
    data = next((line[5:] for line in text.splitlines() if line.startswith("data:") and '"id"' in line), text)
    return json.loads(data)["result"]


@pytest.fixture(scope="module")
def limited(start_ingress: Callable[..., Any]) -> Any:
    return start_ingress(
        {"streams_of_user": 1}, RATE_LIMITS_READS="registered=5/h", RATE_LIMITS_WRITES="registered=1/h"
    )


async def test_each_request_counts_as_a_read(limited: Any) -> None:
    async with connect(limited, "ann") as http:
        answers = [await ask(http, "list_agents") for _ in range(6)]
        read = await http.get("/conversations/default/default")
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert read.status_code == 429, "the endpoint has a bucket of its own"
    refusal = answers[5].json()["error"]
    assert refusal["message"] == "The limit is 5 reads per 3600 s."
    assert refusal["data"]["type"] == "urn:everturn:problem:too-many"
    assert 600 <= int(answers[5].headers["retry-after"]) <= 720
    assert answers[5].headers["ratelimit"].startswith('"reads";r=0;')


async def test_a_message_counts_as_a_write_and_says_when_to_try_again(limited: Any) -> None:
    async with connect(limited, "ben") as http:
        first = read_result(await ask(http, "ask_agent", message="hello", wait_s=0))
        second = read_result(await ask(http, "ask_agent", message="hello", wait_s=0))
        listed = read_result(await ask(http, "list_agents"))
    assert first["structuredContent"]["status"] == "running"
    text = second["content"][0]["text"]
    assert second["isError"] and "The limit is 1 writes per 3600 s. Try again in " in text
    assert not listed.get("isError")


async def test_a_wait_counts_as_an_event_stream(limited: Any) -> None:
    async with connect(limited, "mcp-caller") as http:
        begun = read_result(await ask(http, "ask_agent", message="hello", wait_s=0))["structuredContent"]
        ids = {name: begun[name] for name in ("conversation_id", "turn_id")}
        waiting = asyncio.create_task(ask(http, "get_answer", **ids, wait_s=15))
        await wait_until(lambda: has_stream(limited))
        refused = read_result(await ask(http, "get_answer", **ids, wait_s=15))
        assert refused["isError"] and "(429)" in refused["content"][0]["text"]
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait({waiting})


def has_stream(ingress: Any) -> bool:
    numbers = httpx2.get(f"{ingress.url}/metrics", timeout=20).text
    return any(line.startswith("ingress_streams") and float(line.split()[-1]) >= 1 for line in numbers.splitlines())


async def test_a_body_with_very_many_values_is_refused_before_the_sdk_parses_it(
    start_ingress: Callable[..., Any],
) -> None:
    async with connect(start_ingress({}), "ann") as http:
        answer = await ask(http, "list_agents", **{f"a{number}": number for number in range(6_000)})
    assert answer.is_client_error
    assert "more than 10000 values" in json.dumps(answer.json()["error"])
