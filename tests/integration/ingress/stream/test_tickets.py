"""A ticket opens the events of one conversation, any number of times, and nothing else; it appears in no log."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

Refused = Callable[..., dict[str, Any]]
ABSENT = "conv_01890a5d-ac96-774b-bcce-b302099a8057"


async def get_ticket(chat: Any, conversation: str) -> str:
    answer = await chat.http.post(f"{chat.base}/{conversation}/ticket")
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert set(answer.json()) == {"ticket", "expires_at"}
    return answer.json()["ticket"]


async def first_event(chat: Any, url: str) -> str:
    async with chat.http.stream("GET", url) as response:
        assert response.status_code == 200
        return await anext(line async for line in response.aiter_lines() if line.startswith("event:"))


async def test_a_ticket_opens_and_reopens_its_stream(chat: Any, ingress: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    ticket = await get_ticket(chat, conversation)

    for _ in range(2):
        assert await first_event(chat, f"{chat.base}/{conversation}/events?ticket={ticket}") == "event: ready"

    assert ticket not in ingress.log.read_text()


async def test_a_ticket_for_another_conversation_changed_or_none_is_401(chat: Any, refused: Refused) -> None:
    mine, other = [(await chat.send("hello"))["conversation_id"] for _ in range(2)]
    ticket = await get_ticket(chat, mine)

    for url in (
        f"{chat.base}/{other}/events?ticket={ticket}",
        f"{chat.base}/{mine}/events?ticket={ticket[:-2]}xx",
        f"{chat.base}/{mine}/events?ticket=",
        f"{chat.base}/{mine}/events?ticket={ticket}&ticket={ticket}",
        f"{chat.base}/{mine}/events?ticket={'x' * 5000}",
    ):
        refused(await chat.http.get(url), 401)


@pytest.mark.parametrize("conversation", [ABSENT, "conv_x"])
async def test_there_is_no_ticket_for_what_is_not_the_callers(
    client: httpx2.AsyncClient, refused: Refused, conversation: str
) -> None:
    refused(await client.post(f"/conversations/default/default/{conversation}/ticket"), 404)


async def test_a_bearer_token_in_an_address_is_not_read(start_ingress: Any, refused: Refused) -> None:
    closed = start_ingress(
        EVERTURN_MODE="production",
        AUTH_ISSUER="i",
        AUTH_AUDIENCE="a",
        AUTH_SECRET="a secret that is long enoughfor HS256",
    )
    async with httpx2.AsyncClient(base_url=closed.url) as http:
        for query in ("token=x", "access_token=x", "ticket=evk_0123456789abcdef_" + "a" * 43):
            refused(await http.get(f"/conversations/default/default/{ABSENT}/events?{query}"), 401)
