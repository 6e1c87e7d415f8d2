"""The input of the model in a round, over HTTP."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

BASE = "/conversations/default/default"
ABSENT = "turn_01890a5d-ac96-774b-bcce-b302099a8057"
Refused = Callable[..., dict[str, Any]]


async def test_the_input_of_a_round_is_shown_part_by_part(
    client: httpx2.AsyncClient, chat: Any, keep_context: Any
) -> None:
    sent = await chat.send("hello")
    await keep_context(sent["conversation_id"], sent["turn_id"], ("pool", "announce 1"), ("pool", "announce 2"))
    url = f"{BASE}/{sent['conversation_id']}/turns/{sent['turn_id']}/rounds"

    first = (await client.get(f"{url}/1/context")).json()
    begin = (await client.get(f"{url}/2/context", params={"limit": 2})).json()
    rest = (await client.get(f"{url}/2/context", params={"cursor": begin["next_cursor"]})).json()

    assert [part["text"] for part in first["segments"]] == ["You are helpful.", "pool", "announce 1"]
    assert [part["cache"] for part in first["segments"]] == ["unknown", "none", "none"]
    assert [(part["index"], part["text"], part["cache"]) for part in (*begin["segments"], *rest["segments"])] == [
        (0, "You are helpful.", "read"),
        (1, "pool", "none"),
        (2, "announce 2", "none"),
    ]
    assert (begin["segments_total"], rest["next_cursor"]) == (3, None)


async def test_the_system_text_can_be_that_of_an_earlier_turn(
    client: httpx2.AsyncClient, chat: Any, keep_context: Any
) -> None:
    sent = await chat.send("hello")
    await keep_context(sent["conversation_id"], sent["turn_id"], ("announce",), system="Be brief.", system_turn=ABSENT)

    url = f"{BASE}/{sent['conversation_id']}/turns/{sent['turn_id']}/rounds/1/context"
    shown = (await client.get(url)).json()

    assert [part["text"] for part in shown["segments"]] == ["Be brief.", "announce"]


@pytest.mark.parametrize(
    ("turn", "number", "status"),
    [("{turn}", "1", 404), ("{turn}", "0", 422), ("{turn}", "x", 422), ("{turn}", "9" * 30, 422), (ABSENT, "1", 404)],
)
async def test_what_is_not_kept_is_absent(
    client: httpx2.AsyncClient, chat: Any, refused: Refused, turn: str, number: str, status: int
) -> None:
    sent = await chat.send("hello")
    path = turn.format(turn=sent["turn_id"])

    refused(await client.get(f"{BASE}/{sent['conversation_id']}/turns/{path}/rounds/{number}/context"), status)


@pytest.mark.parametrize("cursor", ["", "x", "W10", "WyJjb250ZXh0IiwgIi0xIl0"])
async def test_a_cursor_of_another_list_is_refused(
    client: httpx2.AsyncClient, chat: Any, keep_context: Any, refused: Refused, cursor: str
) -> None:
    sent = await chat.send("hello")
    await keep_context(sent["conversation_id"], sent["turn_id"])
    url = f"{BASE}/{sent['conversation_id']}/turns/{sent['turn_id']}/rounds/1/context"

    refused(await client.get(url, params={"cursor": cursor}), 400)
