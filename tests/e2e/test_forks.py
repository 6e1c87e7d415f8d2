"""A fork goes its own way, and remembers what was said before it, also when its source is gone."""

from typing import Any

import httpx2
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


async def test_a_fork_remembers_what_was_said_before_it_when_its_source_is_erased(offline_stage: Any) -> None:
    client = offline_stage.clients[0]
    sent = await client.send_message("new", "Hello, my cat is called Tom")
    watcher = offline_stage.watch(sent.conversation_id)
    await watcher.wait_ended(sent.turn_id)

    path = f"/conversations/default/default/{sent.conversation_id}/fork"
    async with httpx2.AsyncClient(base_url=offline_stage.platform.urls[0], timeout=30) as http:
        answer = await http.post(path, json={})
    fork_id = answer.json()["conversation_id"]
    await offline_stage.close()
    await client.delete_conversation(sent.conversation_id)
    again = await client.send_message(fork_id, "What did I ask first?")
    forked = offline_stage.watch(fork_id)
    turn = await forked.wait_ended(again.turn_id)

    assert "my cat is called Tom" in (turn.answer or "")
    await offline_stage.check_history(fork_id, forked)
    await offline_stage.close()
