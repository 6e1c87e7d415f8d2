"""F4 to F6: Redis is restarted, comes back with an old file, stalls, is full, or takes no events; every test ends with
the checker."""

import asyncio
import shutil
import signal
import time

import httpx2
import pytest
from faults.chaos import Chaos
from redis import Redis

from everturn.events.model import ChatComplete
from everturn.redis.users import WORKER

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

REFUSED_WITHIN_S = 2.0
"""The guaranteed limit; deadlines in tests are three times that."""
STALL_S = 10.0
"""Longer than a lease lasts here."""
UNTOLD_TRIES = 2
POLL_EVERY_S, POLLS = 0.1, 600


async def test_a_restart_with_its_data_is_a_pause(chaos: Chaos) -> None:
    sent = await chaos.harness.clients[0].send_message("new", "script:slow please")
    watchers = [chaos.harness.watch(sent.conversation_id), chaos.harness.watch(sent.conversation_id, ingress=1, cuts=5)]
    await watchers[0].wait_text(sent.turn_id, "answer")

    await chaos.platform.restart("redis")
    turn = await watchers[0].wait_ended(sent.turn_id)

    assert turn.status == "completed"
    await chaos.harness.check_invariants(sent.conversation_id, *watchers)
    await chaos.harness.close()


async def test_ids_increase_after_a_failover_to_a_stale_replica(chaos: Chaos) -> None:
    redis, folder = chaos.platform.redis, chaos.platform.home.redis / "appendonlydir"
    ended = await chaos.harness.clients[0].send_message("new", "script:plain please")
    steady = chaos.harness.watch(ended.conversation_id)
    await steady.wait_ended(ended.turn_id)
    stale = folder.with_name("stale")
    with Redis.from_url(redis.url) as client:
        client.config_set("appendfsync", "always")
        shutil.copytree(folder, stale)
    second = await chaos.harness.clients[0].send_message(ended.conversation_id, "script:plain please")
    await steady.wait_ended(second.turn_id)
    await steady.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
    running = await chaos.harness.clients[0].send_message(ended.conversation_id, "script:slow please")
    await steady.wait_text(running.turn_id, "answer")
    held, known = next(envelope.id for envelope in reversed(steady.seen) if envelope.id), steady.state

    await chaos.platform.stop_part("redis")
    shutil.rmtree(folder)
    stale.rename(folder)
    await chaos.platform.restart("redis")
    resumed = chaos.harness.watch(ended.conversation_id, ingress=1, after=held)
    # It can continue exactly where it was, and then no snapshot repeats what it has seen before.
    resumed.state = known
    fresh = chaos.harness.watch(ended.conversation_id, ingress=1)
    turn = await fresh.wait_ended(running.turn_id)

    assert turn.status == "completed"
    await resumed.wait_ended(running.turn_id)
    await fresh.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
    await chaos.harness.check_invariants(ended.conversation_id, steady, resumed, fresh)
    await chaos.harness.close()


async def test_a_stalled_redis_refuses_in_time_without_partial_writes(chaos: Chaos) -> None:
    sent = await chaos.harness.clients[0].send_message("new", "script:plain please")
    watcher = chaos.harness.watch(sent.conversation_id)
    await watcher.wait_ended(sent.turn_id)

    chaos.platform.kill("redis", signal.SIGSTOP)
    began = time.monotonic()
    try:
        async with httpx2.AsyncClient(base_url=chaos.links.urls[0], trust_env=False) as http:
            path = f"/conversations/default/default/{sent.conversation_id}/messages"
            refused = await http.post(path, json={"text": "script:plain please"}, timeout=20)
        took_s = time.monotonic() - began
    finally:
        chaos.platform.kill("redis", signal.SIGCONT)

    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert took_s < 3 * REFUSED_WITHIN_S
    state = await chaos.harness.check_invariants(sent.conversation_id, watcher)
    assert [turn.turn_id for turn in state.turns] == [sent.turn_id]
    await chaos.harness.close()


async def test_a_stalled_redis_refuses_messages_in_time(
    chaos: Chaos,
) -> None:
    sent = await chaos.harness.clients[0].send_message("new", "script:slow please")
    watchers = [chaos.harness.watch(sent.conversation_id, ingress=n) for n in range(2)]
    await watchers[0].wait_text(sent.turn_id, "thinking")

    answers: list[tuple[httpx2.Response, float]] = []
    chaos.platform.kill("redis", signal.SIGSTOP)
    stalled_until = time.monotonic() + STALL_S
    try:
        async with httpx2.AsyncClient(trust_env=False, timeout=20) as http:
            while time.monotonic() < stalled_until:
                began, url = time.monotonic(), chaos.links.urls[len(answers) % 2]
                path = f"/conversations/default/default/{sent.conversation_id}/messages"
                answer = await http.post(f"{url}{path}", json={"text": "script:plain please"})
                answers.append((answer, time.monotonic() - began))
    finally:
        chaos.platform.kill("redis", signal.SIGCONT)

    assert {answer.status_code for answer, _ in answers} == {503}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer, _ in answers)
    assert max(took_s for _, took_s in answers) < 3 * REFUSED_WITHIN_S
    for watcher in watchers:
        assert (await watcher.wait_ended(sent.turn_id)).status == "completed"
        await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
    later = await chaos.harness.clients[0].send_message(sent.conversation_id, "script:plain please")
    await watchers[1].wait_ended(later.turn_id)
    state = await chaos.harness.check_invariants(sent.conversation_id, *watchers)
    assert [turn.turn_id for turn in state.turns] == [sent.turn_id, later.turn_id]
    await chaos.harness.close()


async def test_a_full_redis_refuses_new_messages_and_delays_what_was_accepted(chaos: Chaos) -> None:
    sent = await chaos.harness.clients[0].send_message("new", "script:slow please")
    watcher = chaos.harness.watch(sent.conversation_id)
    await watcher.wait_text(sent.turn_id, "thinking")

    with Redis.from_url(chaos.platform.redis.url) as redis:
        redis.config_set("maxmemory", 1)
        try:
            async with httpx2.AsyncClient(base_url=chaos.links.urls[1], trust_env=False) as http:
                path = f"/conversations/default/default/{sent.conversation_id}/messages"
                refused = await http.post(path, json={"text": "script:plain please"}, timeout=20)
        finally:
            redis.config_set("maxmemory", 0)
    turn = await watcher.wait_ended(sent.turn_id)

    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert turn.status == "completed"
    state = await chaos.harness.check_invariants(sent.conversation_id, watcher)
    assert [turn.turn_id for turn in state.turns] == [sent.turn_id]
    await chaos.harness.close()


async def test_an_end_reaches_clients_once_after_failed_publishing(
    chaos: Chaos,
) -> None:
    sent = await chaos.harness.clients[0].send_message("new", "script:slow please")
    watchers = [chaos.harness.watch(sent.conversation_id, ingress=n) for n in range(2)]
    cut = chaos.harness.watch(sent.conversation_id, cuts=7)
    await watchers[0].wait_text(sent.turn_id, "thinking")

    with Redis.from_url(chaos.platform.redis.url) as redis:
        # Everything else is answered as usual: doorbells ring, leases are claimed, and only events are lost.
        redis.execute_command("ACL", "SETUSER", WORKER, "-xadd")
        try:
            for tries in range(1, UNTOLD_TRIES + 1):
                await wait_untold(chaos, sent.turn_id, tries)
                redis.lpush("turns:privileged", sent.conversation_id)
        finally:
            redis.execute_command("ACL", "SETUSER", WORKER, "+xadd")
    for watcher in (*watchers, cut):
        assert (await watcher.wait_ended(sent.turn_id)).status == "completed"
        await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
    later = await chaos.harness.clients[1].send_message(sent.conversation_id, "script:plain please")
    for watcher in (*watchers, cut):
        await watcher.wait_ended(later.turn_id)
        await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")

    for watcher in watchers:
        ends = [envelope.turn_id for envelope in watcher.seen if isinstance(envelope.data, ChatComplete)]
        # After ids that were issued and never published it comes as a snapshot.
        assert ends.count(sent.turn_id) <= 1
        assert ends.count(later.turn_id) == 1
    await chaos.harness.check_invariants(sent.conversation_id, *watchers, cut)
    await chaos.harness.close()


async def wait_untold(chaos: Chaos, turn_id: str, tries: int) -> None:
    """Until the workers report that so many attempts to announce the turn's end have failed."""
    logs = [chaos.platform.home.logs / f"{name}.log" for name in chaos.platform.reports if name.startswith("worker")]
    for _ in range(POLLS):
        said = [line for log in logs for line in log.read_text().splitlines() if turn_id in line]
        if sum("Could not publish the end of a turn" in line for line in said) >= tries:
            return
        await asyncio.sleep(POLL_EVERY_S)
    raise AssertionError(f"{tries} tries never failed")
