"""Single clients: slow ones, and planned ends."""

import asyncio
import signal
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import httpx2
import jwt
import pytest

BASE = "/conversations/default/default"
SECRET = "a secret that is long enough for HS256"
HINTS = (":", "conv_status", "chat_signal", "conv_title")


def open_idle_socket(url: str, path: str) -> socket.socket:
    parts = urlsplit(url)
    connected = socket.socket()
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connected.connect((parts.hostname, parts.port))
    connected.sendall(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    return connected


async def test_a_client_that_does_not_read_delays_no_other_and_is_resynced(
    ingress: Any, chat: Any, follow: Any, worker: Any
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    idle = open_idle_socket(ingress.url, f"{BASE}/{conversation}/events")

    async with follow(conversation) as stream:
        await stream.until("stream_snapshot", skip=("ready",))
        (first,) = await worker.say(conversation, "first")
        assert (await stream.until("chat_delta", skip=HINTS)).id == first
        # Until it has reached the end of the stream it would read all of it at its own pace, and miss nothing.
        await asyncio.to_thread(read_until, idle, f"id: {first}".encode())
        for n in range(100):
            (sent,) = await worker.say(conversation, f"{n}" + "x" * 100_000)
            assert (await stream.until("chat_delta", skip=HINTS)).id == sent
        await worker.commit(conversation)
        (last,) = await worker.say(conversation, "last")
        assert (await stream.until("chat_delta", skip=HINTS)).id == last
    received = await asyncio.to_thread(read_until, idle, f"id: {last}".encode())
    idle.close()

    assert b"event: stream_gap" in received
    gap, _, after = received.rpartition(b"event: stream_gap")
    assert b"event: stream_snapshot" in after
    assert after.count(b"event: chat_delta") == 1
    ids = [line for line in gap.split(b"\n") if line.startswith(b"id: ")]
    assert len(ids) < 100


def read_until(connected: socket.socket, wanted: bytes) -> bytes:
    connected.settimeout(20)
    received = bytearray()
    while wanted not in received:
        piece = connected.recv(1 << 20)
        assert piece, "the stream ended"
        received += piece
    return bytes(received)


async def test_a_draining_server_announces_its_end_with_a_retry_time(start_ingress: Any, chat: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    other = start_ingress()

    async with (
        httpx2.AsyncClient(base_url=other.url, timeout=20) as http,
        http.stream("GET", f"{BASE}/{conversation}/events") as response,
    ):
        lines = response.aiter_lines()
        async for line in lines:
            if line == "event: stream_snapshot":
                break
        began = time.monotonic()
        other.send(signal.SIGTERM)
        rest = [line async for line in lines]

    assert "event: server_shutdown" in rest
    (retry,) = [int(line.removeprefix("retry: ")) for line in rest if line.startswith("retry: ")]
    assert 500 <= retry <= 3000
    assert await asyncio.to_thread(other.stop) == 0
    assert time.monotonic() - began < 5 * 3


async def test_a_stream_ends_when_its_token_does(start_ingress: Any) -> None:
    ingress = start_ingress(AUTH_ISSUER="i", AUTH_AUDIENCE="a", AUTH_SECRET=SECRET)
    claims = {"iss": "i", "aud": "a", "sub": "ann", "tenant": "default", "project": "default"}
    fresh = jwt.encode(claims | {"exp": int(time.time()) + 60}, SECRET, "HS256")

    async with httpx2.AsyncClient(base_url=ingress.url, timeout=20) as http:
        made = await http.post(
            f"{BASE}/new/messages", json={"text": "hello"}, headers={"Authorization": f"Bearer {fresh}"}
        )
        url = f"{BASE}/{made.json()['conversation_id']}/events"
        # Taken for a minute after its end. What it opens must be open before that minute is over.
        dying = jwt.encode(claims | {"exp": int(time.time()) - 55}, SECRET, "HS256")
        async with (
            asyncio.timeout(30),
            http.stream("GET", url, headers={"Authorization": f"Bearer {dying}"}) as response,
        ):
            received = [line async for line in response.aiter_lines()]

    assert "event: stream_snapshot" in received
    assert "event: server_shutdown" not in received


@pytest.mark.parametrize("clients", [60])
async def test_many_clients_of_one_conversation_share_their_snapshots(
    start_ingress: Any, chat: Any, clients: int
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    ingress = start_ingress({"streams_of_user": 1000})

    async with httpx2.AsyncClient(base_url=ingress.url, timeout=20, limits=httpx2.Limits(max_connections=200)) as http:

        async def join() -> None:
            async with http.stream("GET", f"{BASE}/{conversation}/events") as response:
                async for line in response.aiter_lines():
                    if line == "event: stream_snapshot":
                        return

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(join())
        metrics = (await http.get("/metrics")).text

    reads = next(line for line in metrics.splitlines() if line.startswith("ingress_stream_snapshots_total"))
    assert float(reads.split()[1]) < clients
