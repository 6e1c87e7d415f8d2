"""F3, F8, F9, F10 and F25: ingresses that die or drain with many streams, clients that are cut or never read."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from faults.chaos import Chaos
from helpers.waiting import wait_until
from platform_harness.socket_watcher import SocketWatcher
from platform_harness.watcher import Watcher
from redis import Redis

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

STREAMS = int(os.environ.get("RETURNING", "45"))
"""Streams of a killed ingress that come back at once; `make load` has a thousand."""
CUTS = 50
SILENT = 40
LIMIT_S = 30.0
MESSAGE = {"text": "script:plain please"}
MAX_SILENT_KIB = 204
"""What a client that never reads may cost in the process: 0.2 MiB, with all else that grew meanwhile."""
STREAM_BEGINS = b"HTTP/1.1 200 "


async def follow_all(chaos: Chaos, conversation_ids: list[str], count: int) -> list[Watcher]:
    """So many clients on the first ingress, all with their first snapshot."""
    watchers = chaos.harness.watch_all(conversation_ids, count)
    for watcher in watchers:
        await watcher.wait_until(lambda w: w.state is not None)
    return watchers


async def test_clients_of_a_killed_ingress_reconnect_without_loss(chaos: Chaos) -> None:
    sent = [await chaos.harness.clients[0].send_message("new", "script:slow please") for _ in range(3)]
    watchers = await follow_all(chaos, [each.conversation_id for each in sent], STREAMS)
    await watchers[0].wait_text(sent[0].turn_id, "answer")
    front, elsewhere = chaos.links.front["ingress-1"], chaos.links.front["ingress-2"]

    chaos.platform.auto_restart = True
    with front.aimed_at(elsewhere.target):
        await chaos.platform.kill_and_wait("ingress-1")

        for n, watcher in enumerate(watchers):
            await watcher.wait_ended(sent[n % 3].turn_id)
    for n, each in enumerate(sent):
        await chaos.harness.check_invariants(each.conversation_id, *watchers[n::3][:5])
    for watcher in watchers:
        assert watcher.failure is None
    await chaos.harness.close()


async def test_a_draining_ingress_moves_its_clients_without_errors(chaos: Chaos) -> None:
    sent = await chaos.harness.clients[0].send_message("new", "script:slow please")
    watchers = await follow_all(chaos, [sent.conversation_id], 10)
    await watchers[0].wait_text(sent.turn_id, "thinking")
    finish = await begin_message(chaos, sent.conversation_id)
    chaos.platform.auto_restart = False

    # A load balancer sends new connections elsewhere; the ingress itself closes the open ones.
    with chaos.links.front["ingress-1"].aimed_at(chaos.links.front["ingress-2"].target):
        chaos.platform.kill("ingress-1", signal.SIGTERM)
        exiting = asyncio.create_task(chaos.platform.wait_exit("ingress-1"))
        for watcher in watchers:
            await watcher.wait_until(lambda w: "server.shutdown" in {envelope.type for envelope in w.seen})
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
            answers = await asyncio.gather(
                *(http.post(messages_url(chaos, n, sent.conversation_id), json=MESSAGE) for n in range(8))
            )
        begun = await finish()
        assert await asyncio.wait_for(exiting, 90) == 0
        await chaos.platform.restart("ingress-1")

    assert (begun, [answer.status_code for answer in answers]) == (202, [202] * 8)
    for watcher in watchers:
        await watcher.wait_ended(sent.turn_id)
        for each in answers:
            await watcher.wait_ended(each.json()["turn_id"])
        await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
    await chaos.harness.check_invariants(sent.conversation_id, *watchers[:4])
    await chaos.harness.close()


def messages_url(chaos: Chaos, n: int, conversation_id: str) -> str:
    """By way of the proxies, in turn."""
    return f"{chaos.links.urls[n % 2]}/conversations/default/default/{conversation_id}/messages"


async def begin_message(chaos: Chaos, conversation_id: str) -> Callable[[], Awaitable[int]]:
    """Half of a message, which the first ingress itself has begun to read; the rest is sent by what is returned, with
    the status of the answer."""
    target = chaos.links.front["ingress-1"].target
    assert target is not None
    body = json.dumps(MESSAGE).encode()
    reader, writer = await asyncio.open_connection(*target)
    path = f"/conversations/default/default/{conversation_id}/messages"
    fields = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n"
    writer.write(f"POST {path} HTTP/1.1\r\nHost: {target[0]}\r\n{fields}\r\n".encode())
    async with asyncio.timeout(LIMIT_S):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    writer.write(body[:5])

    async def finish() -> int:
        writer.write(body[5:])
        async with asyncio.timeout(LIMIT_S):
            head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1])

    return finish


@pytest.mark.parametrize("sockets", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["streams", "sockets"])
async def test_fifty_cuts_later_a_client_has_the_same_as_one_that_was_never_cut(chaos: Chaos, sockets: bool) -> None:
    sent = await chaos.harness.clients[0].send_message("new", "script:slow please")
    steady = chaos.harness.watch(sent.conversation_id, ingress=1)
    if sockets:
        cut = [_follow_over_socket(chaos, sent.conversation_id) for _ in range(6)]
    else:
        cut = [chaos.harness.watch(sent.conversation_id, cuts=seed) for seed in range(6)]
    front = chaos.links.front["ingress-1"]

    cuts = rounds = 0
    while rounds < 10 or cuts < CUTS:
        seen = len(steady.seen)
        await steady.wait_until(lambda w, seen=seen: len(w.seen) > seen or _has_ended(w, sent.turn_id))
        # Who was cut comes back in its own time: there must be somebody to be cut again.
        await wait_until(lambda: front.open_connections > 0)
        cuts, rounds = cuts + front.cut(), rounds + 1
    await steady.wait_ended(sent.turn_id)

    for watcher in cut:
        await watcher.wait_ended(sent.turn_id)
    await chaos.harness.check_invariants(sent.conversation_id, steady, *cut)
    await chaos.harness.close()


def _follow_over_socket(chaos: Chaos, conversation_id: str) -> Watcher:
    client, url = chaos.harness.clients[0], chaos.links.urls[0]
    return chaos.harness.follow(SocketWatcher(client, conversation_id, url=url))


async def test_a_client_away_for_too_long_gets_a_snapshot(chaos: Chaos) -> None:
    sent = await chaos.harness.clients[0].send_message("new", "script:slow please")
    first = chaos.harness.watch(sent.conversation_id)
    await first.wait_text(sent.turn_id, "thinking")
    held = next(envelope.id for envelope in reversed(first.seen) if envelope.id)
    await first.wait_ended(sent.turn_id)
    with Redis.from_url(chaos.platform.redis.url) as redis:
        redis.xtrim(f"events:{{{sent.conversation_id}}}", maxlen=1, approximate=False)

    back = chaos.harness.watch(sent.conversation_id, ingress=1, after=held)
    await back.wait_ended(sent.turn_id)

    assert [envelope.type for envelope in back.seen][:3] == ["ready", "stream.gap", "stream.snapshot"]
    await chaos.harness.check_invariants(sent.conversation_id, first, back)
    await chaos.harness.close()


async def test_clients_that_never_read_delay_nobody(chaos: Chaos) -> None:
    big = await chaos.harness.clients[0].send_message("new", "script:plain " + "x" * 50_000)
    watcher = chaos.harness.watch(big.conversation_id)
    await watcher.wait_ended(big.turn_id)
    pid = chaos.platform.pid("ingress-1")
    assert pid is not None
    before_kib = load_own_kib(pid)

    with ExitStack() as silent:
        clients = [silent.enter_context(await connect_silent(chaos, big.conversation_id)) for _ in range(SILENT)]
        for _ in range(12):
            sent = await chaos.harness.clients[1].send_message(big.conversation_id, "script:plain " + "y" * 50_000)
            await watcher.wait_ended(sent.turn_id)
            await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
        grown_kib = load_own_kib(pid) - before_kib
        await asyncio.gather(*(read_gap(client) for client in clients[:3]))

    assert grown_kib < SILENT * MAX_SILENT_KIB
    await chaos.harness.check_invariants(big.conversation_id, watcher)
    await chaos.harness.close()


async def connect_silent(chaos: Chaos, conversation_id: str) -> socket.socket:
    """Asks the first ingress itself for a stream, and reads only that it begins."""
    target = chaos.links.front["ingress-1"].target
    assert target is not None
    loop, client = asyncio.get_running_loop(), socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    path = f"/conversations/default/default/{conversation_id}/events"
    async with asyncio.timeout(LIMIT_S):
        await loop.sock_connect(client, target)
        await loop.sock_sendall(client, f"GET {path} HTTP/1.1\r\nHost: {target[0]}\r\n\r\n".encode())
        assert await loop.sock_recv(client, len(STREAM_BEGINS)) == STREAM_BEGINS
    return client


async def read_gap(client: socket.socket) -> None:
    """At last it reads, and gets a gap: more events waited than are buffered for it."""
    read, tail = asyncio.get_running_loop().sock_recv, b""
    async with asyncio.timeout(LIMIT_S):
        while b"event: stream_gap\n" not in tail:
            came = await read(client, 65_536)
            assert came, "the stream has ended without a gap"
            tail = tail[-64:] + came


def load_own_kib(pid: int) -> int:
    """Memory of the process itself, without the files that it has mapped."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def _has_ended(watcher: Watcher, turn_id: str) -> bool:
    turn = watcher.turn(turn_id)
    return turn is not None and turn.status not in ("queued", "running")
