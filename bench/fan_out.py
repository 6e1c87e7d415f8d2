"""P8: what it costs an ingress to send one conversation's events to 1,000 followers, against sse-starlette.

The baseline is a small Starlette application with the same library, whose clients each have a queue and get one event a
send (`bench/peers/broadcast.py`). Both get the same events, ten at a time, because a worker writes together what has
accumulated during its previous write. The next ten are sent when every client has received the previous ten. CPU of the
two servers is compared, because on a machine with two cores the clients' own would decide the time. Needs nothing
running: it starts its own servers in a folder that it removes.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import aiohttp
from helpers.followers import (
    HELLO_SCRIPT,
    allow_files,
    hold_conversation,
    measure_memory,
    spawn_wide,
)
from helpers.goals import Goal, build_goal, measure_medians, run_goals
from helpers.whole_turns import load_process_cpu

from everturn.core.ids import ConversationId
from everturn.events.cursor import EventCursor
from everturn.events.model import ChatDelta, Envelope, encode_envelope
from everturn.events.redis import RedisEventWriter
from everturn.events.stream import EncodedEvent, Entry
from everturn.redis_drivers import open_redis_drivers
from everturn_client.client import EverturnClient
from everturn_local.ports import LOOPBACK, load_free_port
from everturn_local.supervision.platform import Platform

MARK = b"~"
"""One in each event."""
TEN = 10
OPEN_FILES = 8192
BATCH = 20
"""Clients that connect at once."""
SETTLE_S = 2.0
"""The worker publishes some more after the end of a turn."""
LIMIT_S = 60.0
TS = "2026-03-01T12:00:00.000Z"
CONVERSATION = "conv_0192f3a0-0000-7000-8000-000000000001"


class Crowd:
    """Many clients of one address, which count the events they get together and keep nothing."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._request = f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\n\r\n".encode()
        self._clients: list[Client] = []
        self._expected = 0
        self._arrived = asyncio.Event()

    async def open(self, count: int) -> None:
        for opened in range(0, count, BATCH):
            clients = [Client(self, self._request) for _ in range(min(BATCH, count - opened))]
            await asyncio.gather(*(client.open(self._port) for client in clients))
            self._clients += clients

    def note(self, events: int) -> None:
        self._expected -= events
        if self._expected <= 0:
            self._arrived.set()

    def expect(self, events: int) -> None:
        """Say how many events each client will get next."""
        self._expected = events * len(self._clients)
        self._arrived.clear()

    async def wait(self) -> None:
        """Until all of them have arrived everywhere."""
        async with asyncio.timeout(LIMIT_S):
            await self._arrived.wait()

    def close(self) -> None:
        for client in self._clients:
            client.close()


class Client(asyncio.Protocol):
    """One of a crowd."""

    def __init__(self, crowd: Crowd, request: bytes) -> None:
        self._crowd = crowd
        self._request = request
        self._head = b""
        self._ready = asyncio.Event()

    async def open(self, port: int) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self, LOOPBACK, port)
        async with asyncio.timeout(LIMIT_S):
            await self._ready.wait()
        assert self._head.startswith(b"HTTP/1.1 200 "), self._head

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._ready.is_set():
            self._crowd.note(data.count(MARK))
            return
        self._head += data
        if b"event: ready" in self._head:
            self._ready.set()

    def close(self) -> None:
        self._transport.abort()


class Server(Protocol):
    """One of the servers that are compared, with the clients that follow it."""

    pid: int
    crowd: Crowd

    async def publish(self, events: int) -> None: ...


class OurIngress:
    """One ingress of a platform, and a writer of events in the place of its worker."""

    def __init__(self, pid: int, crowd: Crowd, writer: RedisEventWriter, conversation: str, last: EventCursor) -> None:
        self.pid = pid
        self.crowd = crowd
        self._writer = writer
        self._conversation = ConversationId(conversation)
        self._last = last

    async def publish(self, events: int) -> None:
        ids = [EventCursor(self._last.fence, self._last.n + 1 + n) for n in range(events)]
        encoded = tuple(EncodedEvent(each, "chat.delta", build_payload(str(each))) for each in ids)
        await self._writer.publish(self._conversation, Entry(self._last, encoded), after=self._last)
        self._last = ids[-1]


class Broadcast:
    """The small application."""

    def __init__(self, pid: int, crowd: Crowd, session: aiohttp.ClientSession) -> None:
        self.pid = pid
        self.crowd = crowd
        self._session = session

    async def publish(self, events: int) -> None:
        async with self._session.post("/send", data=b"\n".join([build_payload("1-1")] * events)) as response:
            assert response.status == 202


def build_payload(cursor: str) -> bytes:
    delta = ChatDelta(channel="answer", instance=0, index=0, text="tok~ ", marker="answer")
    envelope = Envelope(id=cursor, type=delta.type, ts=TS, conversation_id=CONVERSATION, round=1, data=delta)
    return encode_envelope(envelope)


def measure(clients: int, rounds: int) -> list[Goal]:
    allow_files(OPEN_FILES)
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder:
        return asyncio.run(measure_in(Path(folder), clients, rounds))


async def measure_in(folder: Path, clients: int, rounds: int) -> list[Goal]:
    async with run_ingress(folder) as ours, run_broadcast() as theirs:
        kib = [(await measure_memory(each.pid, each.crowd.open, clients)).each_kib for each in (ours, theirs)]

        async def load_rate(server: Server, events: int) -> float:
            """Events that arrived at a client for a second of the server's CPU."""
            before_s = load_process_cpu(server.pid)
            for _ in range(rounds):
                server.crowd.expect(events)
                await server.publish(events)
                await server.crowd.wait()
            return events * rounds * clients / (load_process_cpu(server.pid) - before_s)

        subjects = [(server, events) for events in (TEN, 1) for server in (ours, theirs)]
        many, many_theirs, single, single_theirs = await measure_medians(
            [partial(load_rate, server, events) for server, events in subjects],
            3,
            warmups=1,
        )
    to = f"events/s of CPU to {clients} clients"
    return [
        build_goal(f"P8 {to}, {TEN} at a time, vs sse-starlette", many, many_theirs, 5.0, at_least=True),
        build_goal("P8 memory of a connection vs sse-starlette, KiB", *kib, 1.0),
        build_goal(f"{to}, one at a time, vs sse-starlette", single, single_theirs),
    ]


@asynccontextmanager
async def run_ingress(folder: Path) -> AsyncGenerator[OurIngress]:
    script = folder / "script.toml"
    script.write_text(HELLO_SCRIPT)
    env = {"EVERTURN_MODEL": f"scripted:{script}", "EMBEDDER": "hashed"}
    async with (
        Platform(folder / "home", workers=1, env=env, durable=False, auto_restart=False, spawn=spawn_wide) as platform,
        EverturnClient(platform.urls[0]) as client,
        open_redis_drivers(platform.redis.url, name="bench") as drivers,
    ):
        conversation, _ = await hold_conversation(client)
        await asyncio.sleep(SETTLE_S)
        pid, last = platform.pid("ingress-1"), await drivers.event_writer.load_last(ConversationId(conversation))
        assert pid is not None and last is not None
        port = int(platform.urls[0].rpartition(":")[2])
        crowd = Crowd(port, f"/conversations/default/default/{conversation}/events?after={last}")
        yield OurIngress(pid, crowd, drivers.event_writer, conversation, last)
        crowd.close()


@asynccontextmanager
async def run_broadcast() -> AsyncGenerator[Broadcast]:
    port = load_free_port()
    program = str(Path(__file__).parent / "peers" / "broadcast.py")
    process = await asyncio.create_subprocess_exec(sys.executable, "-P", program, str(port))
    async with aiohttp.ClientSession(f"http://{LOOPBACK}:{port}") as session:
        try:
            await wait_until_it_listens(port)
            crowd = Crowd(port, "/events")
            yield Broadcast(process.pid, crowd, session)
            crowd.close()
        finally:
            process.terminate()
            await process.wait()


async def wait_until_it_listens(port: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                _, writer = await asyncio.open_connection(LOOPBACK, port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, clients=1000, rounds=5))
