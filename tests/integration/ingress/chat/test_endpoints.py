"""Messages, as a client sends them."""

import httpx2

BASE = "/conversations/default/default"


async def test_a_message_to_new_becomes_a_queued_turn(client: httpx2.AsyncClient) -> None:
    answer = await client.post(f"{BASE}/new/messages", json={"text": "hello"})

    assert answer.status_code == 202, answer.text
    accepted = answer.json()
    assert accepted["receipt"] == {"state": "queued"}
    state = (await client.post(f"{BASE}/fetch", json={"conversation_id": accepted["conversation_id"]})).json()
    assert state["turns"][0]["text"] == "hello"
    assert state["conversation"]["state"] == "queued"
