"""Conversations over HTTP."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

BASE = "/conversations/default/default"
Refused = Callable[..., dict[str, Any]]


async def create(client: httpx2.AsyncClient, user: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(BASE, json=body, headers={"X-Dev-User": user})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_pages_go_through_all_conversations_newest_first(client: httpx2.AsyncClient) -> None:
    made = [(await create(client, "pages", title=f"t{n}"))["conversation_id"] for n in range(7)]
    headers = {"X-Dev-User": "pages"}

    seen: list[str] = []
    params: dict[str, Any] = {"limit": 3}
    while True:
        page = (await client.get(BASE, params=params, headers=headers)).json()
        seen += [item["conversation_id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]

    assert seen == made[::-1]


async def test_a_conversation_is_renamed_archived_and_found(client: httpx2.AsyncClient) -> None:
    made = await create(client, "finder", title="Sales 100% of_it")
    await create(client, "finder", title="Other")
    headers = {"X-Dev-User": "finder"}
    url = f"{BASE}/{made['conversation_id']}"

    renamed = await client.patch(url, json={"title": "Umsätze 100%"}, headers=headers)
    found = await client.get(BASE, params={"q": "100%"}, headers=headers)
    none = await client.get(BASE, params={"q": "1%0"}, headers=headers)
    archived = await client.patch(url, json={"archived": True}, headers=headers)
    listed = await client.get(BASE, headers=headers)
    archive = await client.get(BASE, params={"archived": "true"}, headers=headers)

    assert renamed.json()["title"] == "Umsätze 100%"
    assert [item["title"] for item in found.json()["items"]] == ["Umsätze 100%"]
    assert none.json()["items"] == []
    assert archived.json()["archived"] is True
    assert [item["title"] for item in listed.json()["items"]] == ["Other"]
    assert len(archive.json()["items"]) == 1


async def test_conversations_are_filtered_by_state(client: httpx2.AsyncClient, chat: Any) -> None:
    queued = await chat.send("hello")

    page = (await client.get(BASE, params={"state": "queued", "limit": 100})).json()

    assert queued["conversation_id"] in [item["conversation_id"] for item in page["items"]]
    assert {item["state"] for item in page["items"]} == {"queued"}


@pytest.mark.parametrize(
    "params",
    [
        {"limit": "0"},
        {"limit": "101"},
        {"limit": "x"},
        {"state": "asleep"},
        {"q": "a\x00"},
        {"q": "x" * 301},
    ],
)
async def test_bad_parameters_are_refused(client: httpx2.AsyncClient, refused: Refused, params: dict[str, str]) -> None:
    refused(await client.get(BASE, params=params), 422)


@pytest.mark.parametrize("cursor", ["x", "eyJ4IjoxfQ", "\x00", "\u0661", "W10", "eyJ" * 90])
async def test_an_invalid_cursor_is_refused(client: httpx2.AsyncClient, refused: Refused, cursor: str) -> None:
    refused(await client.get(BASE, params={"cursor": cursor}), 400)


async def test_an_empty_patch_is_refused(client: httpx2.AsyncClient, refused: Refused) -> None:
    made = await create(client, "dev")

    refused(await client.patch(f"{BASE}/{made['conversation_id']}", json={}), 422)
    refused(await client.patch(f"{BASE}/{made['conversation_id']}", json={"title": "a\nb"}), 422)


async def test_another_project_has_other_conversations(client: httpx2.AsyncClient, refused: Refused) -> None:
    made = await create(client, "dev", title="mine")

    other = f"/conversations/default/other/{made['conversation_id']}"

    refused(await client.get(other), 404)
    assert (await client.get("/conversations/default/other")).json() == {"items": [], "next_cursor": None}
