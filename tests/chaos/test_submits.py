"""F11 and F12: the same submit many times, two messages at once, cancels against steers; all over two ingresses.

And an export and an erasure, which meet a turn that runs.
"""

import asyncio
import uuid
from typing import Any

import httpx2
import pytest
from platform_harness.cleanup import check_nothing_left
from redis import Redis

from everturn.core.errors import EverturnError
from everturn.lifecycle.export_check import check_export
from everturn_client.errors import ProblemError
from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

CONCURRENT_WAIT_S = 5.0
TRIES = 5
TABLES = ("turn", "block", "signal", "artifact", "source", "tool_effect", "usage_event", "snippet", "lease")


def messages_url(harness: Any, n: int, conversation: str = "new") -> str:
    return f"{harness.clients[n % 2].base_url}/conversations/default/default/{conversation}/messages"


async def send(http: httpx2.AsyncClient, url: str, text: str, headers: dict[str, str]) -> httpx2.Response:
    """As a client does: a request that a busy part did not answer in time is repeated after its retry time."""
    answer = await http.post(url, json={"text": text}, headers=headers)
    for _ in range(TRIES):
        if answer.status_code != 503:
            break
        await asyncio.sleep(int(answer.headers["retry-after"]))
        answer = await http.post(url, json={"text": text}, headers=headers)
    return answer


async def test_the_same_submit_twenty_times_in_parallel_is_one_turn(harness: Any) -> None:
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    async with httpx2.AsyncClient(timeout=30) as http:
        answers = await asyncio.gather(
            *(send(http, messages_url(harness, n), "script:plain please", headers) for n in range(20))
        )
        other = await send(http, messages_url(harness, 0), "something else", headers)

    assert {answer.status_code for answer in answers} <= {202, 409}
    # A duplicate is refused only after the longest wait.
    assert all(answer.elapsed.total_seconds() >= CONCURRENT_WAIT_S for answer in answers if answer.status_code == 409)
    accepted = {answer.json()["turn_id"] for answer in answers if answer.status_code == 202}
    assert len(accepted) == 1
    assert (other.status_code, other.headers["content-type"]) == (422, "application/problem+json")
    conversation_id = next(a.json()["conversation_id"] for a in answers if a.status_code == 202)
    watcher = harness.watch(conversation_id)
    await watcher.wait_ended(accepted.pop())
    state = await harness.check_invariants(conversation_id, watcher)
    assert len(state.turns) == 1
    await harness.close()


async def test_two_concurrent_messages_keep_their_order(harness: Any) -> None:
    created = await harness.clients[0].create_conversation()
    watcher = harness.watch(created.conversation_id)

    sends = [harness.clients[n].send_message(created.conversation_id, f"script:slow message {n}") for n in range(2)]
    answers = await asyncio.gather(*sends)
    for answer in answers:
        await watcher.wait_ended(answer.turn_id)

    state = await harness.check_invariants(created.conversation_id, watcher)
    assert [turn.ordinal for turn in state.turns] == list(range(1, len(state.turns) + 1))
    said = sorted([turn.text for turn in state.turns] + [s.text for turn in state.turns for s in turn.signals])
    assert said == ["script:slow message 0", "script:slow message 1"]
    await harness.close()


@pytest.mark.parametrize("said", [["cancel", "cancel"], ["steer", "cancel"], ["followup", "cancel", "steer"]])
async def test_an_accepted_cancel_cancels_the_turn_once(harness: Any, said: list[str]) -> None:
    sent = await harness.clients[0].send_message("new", "script:endless please")
    watchers = [harness.watch(sent.conversation_id, ingress=n) for n in range(2)]
    await watchers[0].wait_text(sent.turn_id, "answer")

    texts = {"followup": "script:plain please", "steer": "script:plain briefly", "cancel": ""}
    signals = [
        harness.clients[n % 2].send_signal(sent.conversation_id, kind, texts[kind], target_turn_id=sent.turn_id)
        for n, kind in enumerate(said)
    ]
    results = await asyncio.gather(*signals, return_exceptions=True)

    # A steer may end the turn before the cancel comes, which is refused then.
    is_cancelled = any(
        kind == "cancel" and not isinstance(each, Exception) for kind, each in zip(said, results, strict=True)
    )
    for watcher in watchers:
        outcome = (await watcher.wait_ended(sent.turn_id)).outcome
        assert outcome == ("cancelled" if is_cancelled else "completed")
        await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
    # Signals after the end are refused with a conflict.
    assert all(
        isinstance(each, ProblemError) and each.problem.status == 409 for each in results if isinstance(each, Exception)
    )
    assert sum(not isinstance(each, Exception) for each in results) >= 1
    await harness.check_invariants(sent.conversation_id, *watchers)
    await harness.close()


async def test_export_and_erasure_work_during_a_turn(
    harness: Any,
) -> None:
    sent = await harness.clients[0].send_message("new", "script:endless please")
    watcher = harness.watch(sent.conversation_id)
    await watcher.wait_text(sent.turn_id, "answer")
    url = f"{harness.clients[1].base_url}/conversations/default/default/{sent.conversation_id}"

    async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
        exported = await http.get(f"{url}/export")
        erased = await http.delete(url)
        again = await http.get(f"{url}/export")

    report = check_export(exported.content.splitlines(keepends=True))
    assert (report.conversation_id, erased.status_code, again.status_code) == (sent.conversation_id, 200, 404)
    with pytest.raises(EverturnError):
        await watcher.wait_ended(sent.turn_id)
    await harness.close()
    await check_nothing_left(harness.platform, sent.conversation_id)
    assert await find_remains(harness.platform, sent.conversation_id) == []


async def find_remains(platform: Platform, conversation_id: str) -> list[str]:
    """What remains some seconds after the erasure: the turn's worker removes what it wrote meanwhile.

    An empty stream stays for an hour; it rejects late publishers.
    """
    remains: list[str] = []
    for _ in range(200):
        counts = [
            platform.postgres.run_sql(
                f"SELECT count(*) FROM {table} WHERE conversation_id = '{conversation_id}'", database=DATABASE
            ).strip()
            for table in TABLES
        ]
        remains = [table for table, count in zip(TABLES, counts, strict=True) if count != "0"]
        remains += [str(found) for found in platform.home.objects.rglob(f"*{conversation_id}*/*")]
        with Redis.from_url(platform.redis.url) as redis:
            remains += ["events"] if redis.xlen(f"events:{{{conversation_id}}}") else []
        if not remains:
            break
        await asyncio.sleep(0.1)
    return remains
