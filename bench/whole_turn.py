"""P2, P3, P4, CPU, bytes: a turn of 200 tokens from an instant model through the whole platform, against peers.

The platform runs as `make run` starts it, with one ingress and two workers. The pipe has the same shape, an ingress,
Redis and a worker, but stores and checks nothing (`bench/peers/pipe.py`); the floor is one process that generates and
streams. `make bench-peers` adds Chainlit and `langgraph dev` from the environments that BENCH_PEERS names. All are
driven in turns by clients of the same kind: each has a conversation, with its stream open before it sends. Needs
nothing running: it starts its own servers in a folder that it removes.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from helpers.goals import Goal, build_goal, run_goals
from helpers.whole_turns import (
    LIMIT_S,
    MARK,
    TOKENS,
    Client,
    PlatformClient,
    Turn,
    build_script,
    drive,
    load_cpu,
    wait_until_idle,
)

from everturn_local.ports import LOOPBACK, load_free_port
from everturn_local.servers.redis import EmbeddedRedis
from everturn_local.supervision.platform import Platform

TEXT_BYTES = 5 * TOKENS
CROWDS: Final = {1: 20, 10: 80, 40: 160}
"""Turns by the number of clients that take them side by side."""


class PeerClient:
    """One request, whose answer is the stream."""

    def __init__(self, port: int, path: str) -> None:
        self._port, self._path = port, path

    async def open(self) -> None: ...

    async def run_turn(self) -> Turn:
        began = time.perf_counter()
        reader, writer = await asyncio.open_connection(LOOPBACK, self._port, limit=1 << 20)
        writer.write(f"GET {self._path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        tokens: list[float] = []
        received = 0
        while data := await reader.read(1 << 18):
            received += len(data)
            tokens += [time.perf_counter() - began] * data.count(MARK)
        writer.close()
        return Turn(0.0, tokens, time.perf_counter() - began, received)

    async def close(self) -> None: ...


class LangGraphClient:
    """A thread, and one request for each run, whose answer is the stream."""

    def __init__(self, port: int) -> None:
        self._url = f"http://{LOOPBACK}:{port}"

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(self._url)
        async with self._session.post("/threads", json={}) as response:
            self._thread = (await response.json())["thread_id"]

    async def run_turn(self) -> Turn:
        body = {
            "assistant_id": "agent",
            "input": {"messages": [{"role": "user", "content": "Hi"}]},
            "stream_mode": ["messages-tuple"],
        }
        began = time.perf_counter()
        tokens: list[float] = []
        received = 0
        async with self._session.post(f"/threads/{self._thread}/runs/stream", json=body) as response:
            accepted = time.perf_counter()
            async for data in response.content.iter_any():
                received += len(data)
                tokens += [time.perf_counter() - began] * min(data.count(MARK), TOKENS - len(tokens))
        return Turn(accepted - began, tokens, time.perf_counter() - began, received)

    async def close(self) -> None:
        await self._session.close()


class ChainlitClient:
    """A socket, which is a conversation. Speaks the packets of Socket.IO over a WebSocket."""

    def __init__(self, port: int) -> None:
        self._url = f"http://{LOOPBACK}:{port}"

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(self._url)
        self._socket = await self._session.ws_connect("/ws/socket.io/?EIO=4&transport=websocket", max_msg_size=0)
        await self._wait_for("0")
        who = {"clientType": "webapp", "sessionId": str(uuid.uuid4()), "threadId": "", "userEnv": "{}"}
        await self._socket.send_str("40" + json.dumps({**who, "chatProfile": ""}))
        await self._wait_for("40")
        await self._socket.send_str('42["connection_successful"]')

    async def run_turn(self) -> Turn:
        message = {"id": str(uuid.uuid4()), "threadId": "", "name": "u", "type": "user_message", "output": "Hi"}
        sent = {"message": {**message, "createdAt": "2026-11-21T00:00:00Z"}, "fileReferences": []}
        began = time.perf_counter()
        await self._socket.send_str("42" + json.dumps(["client_message", sent]))
        tokens: list[float] = []
        received = 0
        while True:
            packet = await self._receive()
            received += len(packet)
            if packet.startswith('42["stream_token"'):
                tokens.append(time.perf_counter() - began)
            elif packet.startswith('42["task_end"') and tokens:
                return Turn(0.0, tokens, time.perf_counter() - began, received)

    async def close(self) -> None:
        await self._session.close()

    async def _wait_for(self, beginning: str) -> None:
        while not (await self._receive()).startswith(beginning):
            pass

    async def _receive(self) -> str:
        while (packet := await self._socket.receive_str()) == "2":
            await self._socket.send_str("3")
        return packet


@dataclass(slots=True)
class Figures:
    """Samples of one subject with one number of clients."""

    turns: list[Turn] = field(default_factory=list[Turn])
    rates: list[float] = field(default_factory=list[float])

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def first_ms(self) -> float:
        return statistics.median(turn.tokens_s[0] * 1e3 for turn in self.turns)

    @property
    def accepted_ms(self) -> float:
        return statistics.median(turn.accepted_s * 1e3 for turn in self.turns)

    @property
    def token_us(self) -> float:
        return statistics.median((turn.tokens_s[-1] - turn.tokens_s[0]) / (TOKENS - 1) * 1e6 for turn in self.turns)

    @property
    def received(self) -> float:
        return statistics.median(turn.received for turn in self.turns)


def measure(blocks: int) -> list[Goal]:
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder:
        return asyncio.run(measure_in(Path(folder), blocks))


async def measure_in(folder: Path, blocks: int) -> list[Goal]:
    script = folder / "script.toml"
    script.write_text(build_script())
    env = {"EVERTURN_MODEL": f"scripted:{script}", "WORKER_SLOTS": "16"}
    async with AsyncExitStack() as stack:
        platform = await stack.enter_async_context(Platform(folder / "home", env=env, workers=2))
        peer = await start_peers(stack, folder)
        subjects: dict[str, Callable[[int], Client]] = {
            "ours": lambda n: PlatformClient(platform.urls[0], f"user-{n}"),
            "pipe": lambda _: PeerClient(peer, "/pipe"),
            "floor": lambda _: PeerClient(peer, "/floor"),
        }
        subjects |= await start_products(stack, folder)
        figures = {(name, crowd): Figures() for name in subjects for crowd in CROWDS}
        cpu_s: dict[str, float] = {}
        for block in range(blocks + 1):
            for crowd, turns in CROWDS.items():
                for name, build in subjects.items():
                    clients = [build(n) for n in range(crowd)]
                    before = load_cpu(platform)
                    found, took_s = await drive(clients, turns)
                    if name == "ours":
                        await wait_until_idle(platform)  # its indexing is part of its cost, not of a peer's
                    if block == 0:
                        continue
                    figures[name, crowd].turns += found
                    figures[name, crowd].rates.append(turns / took_s)
                    if (name, crowd) == ("ours", 10):
                        for part, spent in load_cpu(platform).items():
                            cpu_s[part] = cpu_s.get(part, 0.0) + (spent - before[part]) / turns / blocks
    return build_goals(figures, cpu_s)


async def start_peers(stack: AsyncExitStack, folder: Path) -> int:
    """Start the pipe and the floor; returns their port."""
    server = EmbeddedRedis(folder / "redis", password="bench", log=folder / "redis.log", durable=False)
    await asyncio.to_thread(server.start)
    stack.callback(server.stop)
    port = load_free_port()
    pipe = str(Path(__file__).parent / "peers" / "pipe.py")
    for argv in (["work", server.url], ["serve", str(port), server.url]):
        process = await asyncio.create_subprocess_exec(sys.executable, "-P", pipe, *argv)
        stack.push_async_callback(process.wait)
        stack.callback(process.terminate)
    await wait_until_it_answers(lambda _: PeerClient(port, "/pipe"))
    return port


async def start_products(stack: AsyncExitStack, folder: Path) -> dict[str, Callable[[int], Client]]:
    """Start Chainlit and `langgraph dev` if BENCH_PEERS names the folder of their environments."""
    if not (peers := os.environ.get("BENCH_PEERS")):
        return {}
    agents = Path(__file__).parent / "peers"
    chainlit, langgraph = load_free_port(), load_free_port()
    graphs = {"dependencies": ["."], "graphs": {"agent": f"{agents / 'langgraph_agent.py'}:graph"}}
    (folder / "langgraph.json").write_text(json.dumps(graphs))
    agent = str(agents / "chainlit_app.py")
    commands = {
        "chainlit": ["run", agent, "-h", "--port", str(chainlit)],
        "langgraph": ["dev", "--no-browser", "--no-reload", "--port", str(langgraph), "--n-jobs-per-worker", "40"],
    }
    quiet = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "LOG_LEVEL": "ERROR"}
    for name, arguments in commands.items():
        with (folder / f"{name}.log").open("w") as log:
            process = await asyncio.create_subprocess_exec(
                os.path.join(peers, name, "bin", name),
                *arguments,
                cwd=folder,
                env=os.environ | quiet,
                stdout=log,
                stderr=log,
            )
        stack.push_async_callback(process.wait)
        stack.callback(process.terminate)
    subjects: dict[str, Callable[[int], Client]] = {
        "chainlit": lambda _: ChainlitClient(chainlit),
        "langgraph": lambda _: LangGraphClient(langgraph),
    }
    for name, build in subjects.items():
        try:
            await wait_until_it_answers(build)
        except TimeoutError:
            raise RuntimeError(f"{name} does not answer: {(folder / f'{name}.log').read_text()[-2000:]}") from None
    return subjects


async def wait_until_it_answers(build: Callable[[int], Client]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            client = build(0)
            try:
                await client.open()
                await client.run_turn()
            except (OSError, aiohttp.ClientError):
                await asyncio.sleep(0.2)
            else:
                return
            finally:
                await client.close()


def build_goals(figures: dict[tuple[str, int], Figures], cpu_s: dict[str, float]) -> list[Goal]:
    ours, pipe, floor = ({crowd: figures[name, crowd] for crowd in CROWDS} for name in ("ours", "pipe", "floor"))
    goals = [build_goal("P2 per token with one client vs the floor, us", ours[1].token_us, floor[1].token_us, 3.0)]
    for crowd in (10, 40):
        name = f"P3 turns/s of {crowd} clients vs the pipe"
        goals.append(build_goal(name, ours[crowd].rate, pipe[crowd].rate, 0.5, at_least=True))
    indexing_s = cpu_s.pop("encoder", 0.0)
    goals += [
        build_goal("P3 turns/s of 40 clients vs 10", ours[40].rate, ours[10].rate, 1.0, at_least=True),
        build_goal("P4 accepted with one client vs its goal, ms", ours[1].accepted_ms, 5.0, 1.0),
        build_goal("bytes of the stream of a turn vs its text", ours[10].received, TEXT_BYTES, 5.0),
        build_goal("CPU of a turn at 10 clients vs its goal, ms", 1e3 * sum(cpu_s.values()), 16.0, 1.0),
        build_goal("CPU of encoding it for search vs its goal, ms", 1e3 * indexing_s, 4.0, 1.0),
    ]
    if ("chainlit", 1) in figures:
        goals += build_product_goals(figures)
    for part, seconds in cpu_s.items():
        goals.append(build_goal(f"CPU of it in {part}, ms", 1e3 * seconds, 16.0))
    for crowd in CROWDS:
        name = f"first token with {crowd} clients vs the pipe, ms"
        goals.append(build_goal(name, ours[crowd].first_ms, pipe[crowd].first_ms))
    return goals


def build_product_goals(figures: dict[tuple[str, int], Figures]) -> list[Goal]:
    goals: list[Goal] = []
    for crowd, most in {1: 1.5, 10: 1.0, 40: 1.0}.items():
        ours, chainlit, langgraph = (figures[name, crowd] for name in ("ours", "chainlit", "langgraph"))
        clients = f"{crowd} clients"
        if crowd > 1:
            goals.append(
                build_goal(f"P3 turns/s of {clients} vs Chainlit", ours.rate, chainlit.rate, 2.0, at_least=True)
            )
        first = f"P4 first token with {clients} vs Chainlit, ms"
        goals.append(build_goal(first, ours.first_ms, chainlit.first_ms, most))
        goals.append(build_goal(f"turns/s of {clients} vs langgraph dev", ours.rate, langgraph.rate))
        goals.append(build_goal(f"first token with {clients} vs langgraph dev, ms", ours.first_ms, langgraph.first_ms))
    return goals


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, blocks=2))
