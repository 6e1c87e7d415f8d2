"""Agents with real MCP servers: processes made with the official SDK, and hostile ones written by hand."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from chat_proc.catalog.mcp_servers import McpServer, OfferedServer
from chat_proc.catalog.tool import ToolCall, ToolContext, ToolOutcome, ToolRegistry
from chat_proc.mcp.http import HostRules
from chat_proc.mcp.stdio import ChildOptions
from chat_proc.mcp.tools import Accounts, AgentServers, McpDependencies, open_servers
from chat_proc.tools.web.resolver import NameResolver
from everturn.core.identity import Principal
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.files.stored_files import OWNER
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW, TimelineBuilder
from everturn_testing.turns.live_turn import RecordingTurn
from helpers.waiting import wait_until

START_S = 60.0
SAMPLE = Path(__file__).parents[1] / "mcp_sample" / "server.py"


@dataclass
class Agent:
    """An agent's servers, and what its turns do with them."""

    servers: AgentServers
    objects: MemoryObjects
    owner: Principal = OWNER
    live: RecordingTurn = field(default_factory=RecordingTurn)
    changes: int = 0
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def tool_ids(self) -> list[str]:
        return [tool.spec.tool_id for tool in self.servers.tools]

    def kit(self) -> ToolRegistry:
        """The tools as a turn that begins now has them, until it ends."""
        return ToolRegistry(self.servers.tools)

    async def call(self, tool_id: str, kit: ToolRegistry | None = None, /, **params: object) -> ToolOutcome:
        """A call as the loop makes it."""
        kit = kit or self.kit()
        timeline = TimelineBuilder()
        context = ToolContext(
            principal=self.owner,
            conversation_id=ConversationId("conv_1"),
            turn_id=TurnId("turn_1"),
            round=1,
            blocks=timeline.blocks,
            now=NOW,
            pool=MemorySourcePool(),
            live=self.live,
        )
        call_id = CallId(f"call_01890000-0000-7000-8000-{next(self._numbers):012d}")
        return await kit.run(tool_id, ToolCall(call_id, kit.check_params(tool_id, params), None, context))

    async def until_offered(self, tool_id: str) -> None:
        await wait_until(lambda: tool_id in self.tool_ids)


@asynccontextmanager
async def open_agent(
    server: McpServer | None = None,
    /,
    *,
    secrets: Mapping[str, str] | None = None,
    files: Mapping[str, bytes] | None = None,
    allowed_hosts: tuple[str, ...] = (),
    resolve: Callable[..., Awaitable[Any]] | None = None,
    ready_within_s: float = 20.0,
    uids: range = range(0),
    accounts: Accounts | None = None,
    owner: Principal = OWNER,
    **others: McpServer,
) -> AsyncGenerator[Agent]:
    """An agent with the server `s`, and with others by their names, in turns of `owner`."""
    chosen = {**({} if server is None else {"s": server}), **others}
    objects, names = MemoryObjects(), NameResolver()
    rules, children = HostRules(allowed_hosts), ChildOptions(uids=uids)
    dependencies = McpDependencies(objects, resolve or names.resolve, rules, children, accounts)
    agents: list[Agent] = []

    async def note_change(_: object) -> None:
        for agent in agents:
            agent.changes += 1

    try:
        async with open_servers(
            [OfferedServer(alias, each, "desk" if files is not None else "") for alias, each in chosen.items()],
            dependencies,
            find_secret=(secrets or {}).get,
            on_change=note_change,
            files=files,
            ready_within_s=ready_within_s,
        ) as servers:
            agents.append(Agent(servers, objects, owner))
            yield agents[0]
    finally:
        names.close()


def find_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


@contextmanager
def run_sample(port: int, *options: str) -> Generator[str]:
    """The sample server over HTTP; its address."""
    process = subprocess.Popen(
        [sys.executable, SAMPLE, "http", str(port), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline_s = time.monotonic() + START_S
        while not _accepts(port):
            assert time.monotonic() < deadline_s, "the sample server did not start"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True)
class Asked:
    """A request to a server written by hand."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def rpc(self) -> str:
        """The method of the protocol, or nothing for answers."""
        return self.body.get("method", "") if isinstance(self.body, dict) else ""


Answer = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "raw", "version": "1"},
}
TOOL = {
    "name": "act",
    "description": "Act.",
    "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}},
}


class RawServer:
    """An MCP server of the protocol of 2025-11-25 over raw sockets. `tools` is what it lists; `answer` handles calls
    of tools, and `before` every request, and says whether it has answered."""

    def __init__(self) -> None:
        self.tools: list[dict[str, Any]] = [TOOL]
        self.asked: list[Asked] = []
        self.url = ""
        self.session: str | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def before(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        return False

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        await self.reply(writer, asked, {"content": [{"type": "text", "text": "done"}]})

    @asynccontextmanager
    async def run(self) -> AsyncGenerator["RawServer"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.close()

    async def reply(self, writer: asyncio.StreamWriter, asked: Asked, result: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": asked.body["id"], "result": result}).encode()
        session = f"Mcp-Session-Id: {self.session}\r\n" if self.session and asked.rpc == "initialize" else ""
        await send(writer, 200, body, session)

    async def send_json(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        await send(writer, 200, json.dumps(body).encode())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                asked = await _read_request(reader)
                self.asked.append(asked)
                await self._dispatch(asked, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _dispatch(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        if await self.before(asked, writer):
            return
        if asked.method != "POST":
            await send(writer, 405, b"")
        elif asked.rpc == "initialize":
            await self.reply(writer, asked, HELLO)
        elif asked.rpc == "tools/list":
            await self.reply(writer, asked, {"tools": self.tools})
        elif asked.rpc == "tools/call":
            await self.answer(asked, writer)
        elif "id" in asked.body and asked.rpc:
            error = {"jsonrpc": "2.0", "id": asked.body["id"], "error": {"code": -32601, "message": "unknown"}}
            await send(writer, 200, json.dumps(error).encode())
        else:
            await send(writer, 202, b"")


async def send(writer: asyncio.StreamWriter, status: int, body: bytes, headers: str = "") -> None:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nContent-Type: application/json\r\n{headers}\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def begin_stream(writer: asyncio.StreamWriter, headers: str = "") -> None:
    """Begin a response without an announced length, which ends with the connection."""
    kind = "" if "Content-Type" in headers else "Content-Type: text/event-stream\r\n"
    writer.write(f"HTTP/1.1 200 OK\r\nConnection: close\r\n{kind}{headers}\r\n".encode())
    await writer.drain()


async def send_event(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")
    await writer.drain()


async def _read_request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, json.loads(body) if body else None)
