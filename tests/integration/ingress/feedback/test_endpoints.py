"""Judging turns."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

BASE = "/conversations/default/default"
Refused = Callable[..., dict[str, Any]]


@pytest.fixture
async def url(chat: Any) -> str:
    sent = await chat.send("hello")
    return f"{BASE}/{sent['conversation_id']}/turns/{sent['turn_id']}/feedback"


async def told(client: httpx2.AsyncClient, url: str) -> list[dict[str, Any]]:
    return (await client.get(url.removesuffix("/feedback"))).json().get("feedback", [])


async def test_a_second_judgement_replaces_the_first_and_null_clears_it(client: httpx2.AsyncClient, url: str) -> None:
    await client.post(url, json={"reaction": "ok", "text": "good"})
    second = await client.post(url, json={"reaction": "not_ok", "text": "bad", "ts": "2026-01-01T00:00:00Z"})
    after_second = await told(client, url)
    cleared = await client.post(url, json={"reaction": None})

    assert second.json()["feedback"]["reaction"] == "not_ok"
    assert [item["text"] for item in after_second] == ["bad"]
    assert cleared.json()["cleared"] is True
    assert await told(client, url) == []


async def test_judgements_of_machines_add_up(client: httpx2.AsyncClient, url: str) -> None:
    for confidence in (0.5, 0.9):
        answer = await client.post(url, json={"reaction": "neutral", "origin": "machine", "confidence": confidence})
        assert answer.status_code == 200, answer.text
    await client.post(url, json={"reaction": "ok"})

    assert sorted(item["origin"] for item in await told(client, url)) == ["machine", "machine", "user"]


@pytest.mark.parametrize(
    "body", [{}, {"reaction": "x"}, {"reaction": "ok", "confidence": 1}, {"reaction": "ok", "ts": "x"}]
)
async def test_senseless_feedback_is_refused(
    client: httpx2.AsyncClient, url: str, refused: Refused, body: dict[str, Any]
) -> None:
    refused(await client.post(url, json=body), 422)
