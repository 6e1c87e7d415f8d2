"""A fork continues independently, and remembers what was said before it, even when its source is erased."""

import asyncio
from typing import Any

import httpx2
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


KEPT_LIMIT_S = 20


async def test_a_fork_keeps_its_memory_when_its_source_is_erased(harness: Any) -> None:
    client = harness.clients[0]
    sent = await client.send_message("new", "script:plain, my cat is called Tom")
    watcher = harness.watch(sent.conversation_id)
    await watcher.wait_ended(sent.turn_id)

    path = f"/conversations/default/default/{sent.conversation_id}/fork"
    async with httpx2.AsyncClient(base_url=harness.platform.urls[0], timeout=30) as http:
        answer = await http.post(path, json={})
    fork_id = answer.json()["conversation_id"]
    await harness.close()
    await client.delete_conversation(sent.conversation_id)
    again = await client.send_message(fork_id, "script:plain, what is my cat called?")
    forked = harness.watch(fork_id)
    turn = await forked.wait_ended(again.turn_id)

    async with httpx2.AsyncClient(base_url=harness.platform.urls[0], timeout=30) as http:
        path = f"/conversations/default/default/{fork_id}/turns/{again.turn_id}/rounds/1/context"
        # The request is kept beside the turn, at the latest a moment after its end.
        async with asyncio.timeout(KEPT_LIMIT_S):
            while (context := await http.get(path)).status_code == 404:  # noqa: ASYNC110 - another process keeps it
                await asyncio.sleep(0.05)

    assert turn.status == "completed"
    assert any("my cat is called Tom" in (segment["text"] or "") for segment in context.json()["segments"])
    await harness.check_invariants(fork_id, forked)
    await harness.close()
