"""Memories of a user over HTTP."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

BASE = "/memory/default/default"
Refused = Callable[..., dict[str, Any]]


def as_user(name: str) -> dict[str, str]:
    return {"X-Dev-User": name}


async def texts(client: httpx2.AsyncClient, user: str) -> list[str]:
    return [item["text"] for item in (await client.get(BASE, headers=as_user(user))).json()["items"]]


async def test_pages_list_memories_by_last_change(client: httpx2.AsyncClient, remember: Any) -> None:
    for n in range(5):
        await remember("lists", f"Fact {n}.")

    seen: list[str] = []
    params: dict[str, Any] = {"limit": 2}
    while True:
        page = (await client.get(BASE, params=params, headers=as_user("lists"))).json()
        seen += [item["text"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]

    assert seen == [f"Fact {n}." for n in reversed(range(5))]


async def test_one_memory_is_forgotten_and_then_all(
    client: httpx2.AsyncClient, remember: Any, refused: Refused
) -> None:
    one = await remember("forgets", "Lives in Oslo.")
    await remember("forgets", "Drinks tea.")
    await remember("forgets", "Has a cat.")

    first = await client.delete(f"{BASE}/{one}", headers=as_user("forgets"))
    refused(await client.delete(f"{BASE}/{one}", headers=as_user("forgets")), 404)
    left = await texts(client, "forgets")
    rest = await client.delete(BASE, headers=as_user("forgets"))

    assert (first.json(), rest.json()) == ({"forgotten": 1}, {"forgotten": 2})
    assert left == ["Has a cat.", "Drinks tea."]
    assert await texts(client, "forgets") == []


async def test_anothers_memory_is_as_absent_as_one_that_never_was(
    client: httpx2.AsyncClient, remember: Any, refused: Refused
) -> None:
    mine = await remember("owner", "Lives in Oslo.")

    paths = [mine, "mem_" + "0" * 20, "x", "mem_*", "%00", "mem_" + "0" * 10_000]
    answers = [refused(await client.delete(f"{BASE}/{path}", headers=as_user("thief")), 404) for path in paths]

    assert all(answer == answers[0] for answer in answers)
    assert await texts(client, "owner") == ["Lives in Oslo."]


@pytest.mark.parametrize(("params", "status"), [({"limit": "0"}, 422), ({"cursor": "x"}, 400), ({"cursor": ""}, 422)])
async def test_bad_parameters_are_refused(
    client: httpx2.AsyncClient, refused: Refused, params: dict[str, str], status: int
) -> None:
    refused(await client.get(BASE, params=params), status)
