"""The same submit many times, and two messages at once, over two ingresses."""

import asyncio
import uuid
from typing import Any

import httpx2
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


def messages_url(stage: Any, n: int, conversation: str = "new") -> str:
    return f"{stage.platform.urls[n % 2]}/conversations/default/default/{conversation}/messages"


async def test_the_same_submit_twenty_times_in_parallel_is_one_turn(stage: Any) -> None:
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    async with httpx2.AsyncClient(timeout=30) as http:
        sends = [http.post(messages_url(stage, n), json={"text": "script:plain"}, headers=headers) for n in range(20)]
        answers = await asyncio.gather(*sends)
        other = await http.post(messages_url(stage, 0), json={"text": "something else"}, headers=headers)

    assert {answer.status_code for answer in answers} <= {202, 409}
    accepted = {answer.json()["turn_id"] for answer in answers if answer.status_code == 202}
    assert len(accepted) == 1
    assert (other.status_code, other.headers["content-type"]) == (422, "application/problem+json")
    conversation_id = next(a.json()["conversation_id"] for a in answers if a.status_code == 202)
    watcher = stage.watch(conversation_id)
    await watcher.wait_ended(accepted.pop())
    state = await stage.check_history(conversation_id, watcher)
    assert len(state.turns) == 1
    await stage.close()


async def test_two_messages_at_once_are_one_turn_and_a_followup_or_two_turns_in_order(stage: Any) -> None:
    created = await stage.clients[0].create_conversation()
    watcher = stage.watch(created.conversation_id)

    sends = [stage.clients[n].send_message(created.conversation_id, f"script:slow message {n}") for n in range(2)]
    answers = await asyncio.gather(*sends)
    for answer in answers:
        await watcher.wait_ended(answer.turn_id)

    state = await stage.check_history(created.conversation_id, watcher)
    assert [turn.ordinal for turn in state.turns] == list(range(1, len(state.turns) + 1))
    said = sorted([turn.text for turn in state.turns] + [s.text for turn in state.turns for s in turn.signals])
    assert said == ["script:slow message 0", "script:slow message 1"]
    await stage.close()


async def test_a_message_while_the_wire_is_down_is_refused_and_nothing_is_half_accepted(stage: Any) -> None:
    created = await stage.clients[0].create_conversation()
    await stage.platform.stop_part("redis")
    async with httpx2.AsyncClient(timeout=30) as http:
        refused = await http.post(messages_url(stage, 0, created.conversation_id), json={"text": "script:plain"})
        await stage.platform.restart("redis")
        watcher = stage.watch(created.conversation_id)
        accepted = await http.post(messages_url(stage, 1, created.conversation_id), json={"text": "script:plain"})

    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0
    turn = await watcher.wait_ended(accepted.json()["turn_id"])
    assert turn.answer == "A plain answer."
    state = await stage.check_history(created.conversation_id, watcher)
    assert len(state.turns) == 1
    await stage.close()
