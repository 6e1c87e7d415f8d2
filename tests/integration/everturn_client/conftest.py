"""A small real server that offers the ingress API over one scenario of events, and fails on demand."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from everturn.core.errors import problem
from everturn.events.cursor import ORIGIN, try_parse_cursor
from everturn.events.model import AnyEvent, Envelope, Ready, ServerShutdown, StreamSnapshot, encode_envelope, event_name
from everturn.events.turn_view import build_state
from everturn_testing.events.scenarios import PROJECT, TENANT, Scenario

BASE = "/conversations/default/default"


class CutConnection(Exception):
    """The server cuts a connection on purpose."""


@dataclass
class SmallServer:
    """`scenario` is what clients see; call `publish` after adding to it. Faults are used up one by one."""

    scenario: Scenario = field(default_factory=Scenario)
    url: str = ""
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    submit_faults: list[int | str] = field(default_factory=list)
    """A status to respond with instead, `cut` to drop the connection after accepting the message, or `unreadable`."""
    stream_faults: list[int | str] = field(default_factory=list)
    """A status, a number of bytes as `bytes:<n>` after which the connection is cut, or `shutdown`."""
    is_signal: bool = False
    is_deleted: bool = False
    position: int | None = None
    """The queue position in the receipt of a message."""
    files: dict[str, bytes] = field(default_factory=dict)
    accepted: dict[str, dict[str, object]] = field(default_factory=dict)
    queries: list[str] = field(default_factory=list)
    """The parameters of requests for a list of conversations."""
    snapshot_page: int = -1
    snapshot_is_full: bool = False
    """Later turns leave no room in it for those of the scenario."""
    fetched_turns: int | None = None
    """How many turns a page of `fetch` has; all by default."""
    agents: list[dict[str, object]] = field(default_factory=list)
    """What `GET /bundles` lists."""
    connections: list[dict[str, object]] = field(default_factory=list)
    """The connected accounts."""
    bundle_id: str | None = None
    """The agent of the conversation."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    is_closing: bool = False
    is_deaf: bool = False
    """Streams stay open, and receive no more events."""

    async def publish(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def wait_for(self, method: str, part: str, *, count: int = 1) -> bytes:
        """Wait for such requests; returns the body of the last one."""
        async with asyncio.timeout(10), self.changed:
            while len(found := [body for m, path, _, body in self.requests if m == method and part in path]) < count:
                await self.changed.wait()
            return found[-1]

    async def record(self, request: Request) -> bytes:
        body = await request.body()
        self.requests.append((request.method, request.url.path, dict(request.headers), body))
        await self.publish()
        return body

    def sent(self, part: str) -> list[dict[str, str]]:
        """The headers of requests to such paths."""
        return [headers for _, path, headers, _ in self.requests if part in path]

    async def submit(self, request: Request) -> Response:
        await self.record(request)
        fault = self.submit_faults.pop(0) if self.submit_faults else None
        if isinstance(fault, int):
            return build_problem(fault)
        if fault == "unreadable":
            return JSONResponse([], status_code=202)
        key = request.headers.get("idempotency-key", "")
        self.accepted.setdefault(key, self.build_receipt())
        if fault == "cut":
            return StreamingResponse(self.broken_body(), status_code=202)
        return JSONResponse(self.accepted[key], status_code=202)

    async def broken_body(self) -> AsyncIterator[bytes]:
        yield b"{"
        raise CutConnection

    def build_receipt(self) -> dict[str, object]:
        receipt: dict[str, object] = {
            "conversation_id": self.scenario.conversation.id,
            "turn_id": self.scenario.records[-1].turn.id,
            "receipt": {"state": "accepted"} if self.is_signal else {"state": "queued", "position": self.position},
            "events_url": f"{BASE}/{self.scenario.conversation.id}/events",
        }
        return {**receipt, "signal_id": "sig_1"} if self.is_signal else receipt

    async def signal(self, request: Request) -> Response:
        body = await self.record(request)
        text = json.loads(body)["text"] if request.method == "PATCH" else "North"
        state = "retracted" if request.method == "DELETE" else "accepted"
        signal = {"signal_id": request.path_params["s"], "kind": "steer", "state": state, "text": text}
        return JSONResponse({"conversation_id": request.path_params["c"], "turn_id": "turn_1", "signal": signal})

    async def events(self, request: Request) -> Response:
        await self.record(request)
        fault = self.stream_faults.pop(0) if self.stream_faults else None
        if isinstance(fault, int):
            return build_problem(fault)
        after = request.headers.get("last-event-id")
        return StreamingResponse(self.stream(after, fault), media_type="text/event-stream")

    async def stream(self, after: str | None, fault: str | None) -> AsyncIterator[bytes]:
        left = int(fault.removeprefix("bytes:")) if fault and fault.startswith("bytes:") else None
        async for frame in self.frames(after, fault):
            if left is not None and left < len(frame):
                yield frame[:left]
                raise CutConnection
            left = None if left is None else left - len(frame)
            yield frame

    async def frames(self, after: str | None, fault: str | None) -> AsyncIterator[bytes]:
        yield b"retry: 1\n\n" + self.frame(Ready(cursor=after))
        if after is None:
            state = build_state(self.scenario.pages[self.snapshot_page], tenant=TENANT, project=PROJECT)
            if self.snapshot_is_full:
                state = state.model_copy(update={"turns": (), "next_cursor": "9"})
            yield self.frame(StreamSnapshot(state=state))
            after = state.cursor
        cursor, position = try_parse_cursor(after) or ORIGIN, 0
        while True:
            while position < len(self.scenario.events) and not self.is_deaf:
                envelope = self.scenario.events[position]
                position += 1
                known = envelope.id and (try_parse_cursor(envelope.id) or ORIGIN) <= cursor
                if not known:
                    yield b": heartbeat\n\n" + encode_frame(envelope)
                if fault == "shutdown":
                    yield self.frame(ServerShutdown(retry_ms=20))
                    return
            async with self.changed:
                if self.is_closing:
                    return
                if self.is_deaf or position >= len(self.scenario.events):
                    await self.changed.wait()

    def frame(self, data: AnyEvent) -> bytes:
        conversation_id = self.scenario.conversation.id
        return encode_frame(Envelope(type=data.type, ts="", conversation_id=conversation_id, data=data))

    async def fetch(self, request: Request) -> Response:
        body = json.loads(await self.record(request))
        page = self.scenario.page
        if self.fetched_turns:
            end = int(body.get("cursor", len(page.turns)))
            start = max(0, end - self.fetched_turns)
            page = replace(page, turns=page.turns[start:end], next_cursor=str(start) if start else None)
        state = build_state(page, tenant=TENANT, project=PROJECT)
        return Response(state.model_dump_json(), media_type="application/json")

    async def conversations(self, request: Request) -> Response:
        await self.record(request)
        view = build_state(self.scenario.page, tenant=TENANT, project=PROJECT).conversation.model_dump()
        if request.method == "GET" and request.url.path == BASE:
            self.queries.append(request.url.query)
            return JSONResponse({"items": [view], "next_cursor": None})
        view["bundle_id"] = self.bundle_id
        if self.is_deleted:
            return build_problem(404)
        if request.method == "DELETE":
            return JSONResponse({"conversation_id": view["conversation_id"], "rows": {"turn": 1}, "objects": 2})
        if request.method in ("POST", "PATCH"):
            view.update(json.loads(await request.body()))
        return JSONResponse(view, status_code=201 if request.method == "POST" else 200)

    async def list_connections(self, request: Request) -> Response:
        await self.record(request)
        return JSONResponse({"items": self.connections})

    async def delete_connection(self, request: Request) -> Response:
        await self.record(request)
        place = request.path_params["b"], request.path_params["s"]
        left = [each for each in self.connections if (each["bundle_id"], each["server"]) != place]
        if left == self.connections:
            return build_problem(404)
        self.connections = left
        return JSONResponse({"deleted": 1})

    async def bundles(self, request: Request) -> Response:
        await self.record(request)
        return JSONResponse({"bundles": self.agents})

    async def operations(self, request: Request) -> Response:
        await self.record(request)
        return JSONResponse({"operations": [{"name": "list", "summary": "Lists.", "newer": 1}]})

    async def operation(self, request: Request) -> Response:
        await self.record(request)
        failed = request.path_params["name"] == "fail"
        return build_problem(502) if failed else JSONResponse({"result": {"tickets": [1]}, "newer": 1})

    async def fork(self, request: Request) -> Response:
        await self.record(request)
        fork = {"conversation_id": "conv_copy", "forked_from": request.path_params["c"], "turn_id": "t", "turns": 1}
        return JSONResponse(fork, status_code=201)

    async def export(self, request: Request) -> Response:
        await self.record(request)
        return Response("{}\n", headers={"content-disposition": 'attachment; filename="conversation.jsonl"'})

    async def search(self, request: Request) -> Response:
        await self.record(request)
        found = [
            ("conv_1", "Sales", "assistant", "North\nsold most.", "2026-01-02T03:04:05.000Z"),
            ("conv_2", "Weather", "attachment", "Wind from north", "2026-01-03T03:04:05.000Z"),
            ("conv_1", "Sales", "user", "Who sold most?", "2026-01-02T03:04:00.000Z"),
        ]
        names = ("conversation_id", "title", "target", "snippet", "ts")
        hits = [{**dict(zip(names, hit, strict=True)), "turn_id": "turn_1", "ref": "r"} for hit in found]
        return JSONResponse({"items": hits, "next_cursor": None})

    async def feedback(self, request: Request) -> Response:
        await self.record(request)
        return JSONResponse({})

    async def download(self, request: Request) -> Response:
        await self.record(request)
        artifact_id = request.path_params["artifact"]
        if artifact_id not in self.files:
            return build_problem(404)
        name = artifact_id.removeprefix("art_")
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return StreamingResponse(self.file_pieces(self.files[artifact_id]), headers=headers)

    async def file_pieces(self, data: bytes) -> AsyncIterator[bytes]:
        yield data[:100]
        if data.startswith(b"broken"):
            raise CutConnection
        yield data[100:]

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route(f"{BASE}/fetch", self.fetch, methods=["POST"]),
                Route(f"{BASE}/{{c}}/messages", self.submit, methods=["POST"]),
                Route(f"{BASE}/{{c}}/signals", self.submit, methods=["POST"]),
                Route(f"{BASE}/{{c}}/signals/{{s}}", self.signal, methods=["GET", "PATCH", "DELETE"]),
                Route(f"{BASE}/{{c}}/events", self.events),
                Route(f"{BASE}/{{c}}/fork", self.fork, methods=["POST"]),
                Route(f"{BASE}/{{c}}/export", self.export),
                Route("/bundles/default/default", self.bundles),
                Route("/mcp-connections/default/default", self.list_connections),
                Route("/mcp-connections/default/default/{b}/{s}", self.delete_connection, methods=["DELETE"]),
                Route("/bundles/default/default/{b}/operations", self.operations),
                Route("/bundles/default/default/{b}/operations/{name}", self.operation, methods=["POST"]),
                Route(f"{BASE}/search", self.search, methods=["POST"]),
                Route(f"{BASE}/{{c}}/turns/{{t}}/feedback", self.feedback, methods=["POST"]),
                Route(f"{BASE}/{{c}}", self.conversations, methods=["GET", "PATCH", "DELETE"]),
                Route(BASE, self.conversations, methods=["GET", "POST"]),
                Route("/files/default/default/{artifact}", self.download),
            ]
        )


def encode_frame(envelope: Envelope) -> bytes:
    id_line = f"id: {envelope.id}\n" if envelope.id else ""
    head = f"{id_line}event: {event_name(envelope.type)}\ndata: "
    return head.encode() + encode_envelope(envelope) + b"\n\n"


def build_problem(status: int) -> Response:
    body = problem("test", "Refused on purpose.", status).model_dump_json()
    return Response(body, status_code=status, media_type="application/problem+json", headers={"retry-after": "0"})


class Uvicorn(uvicorn.Server):
    """A server that installs no signal handlers in the test process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@pytest.fixture
async def server() -> AsyncIterator[SmallServer]:
    small = SmallServer()
    listener = socket.create_server(("127.0.0.1", 0))
    small.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(small.app(), log_config=None, lifespan="off", timeout_graceful_shutdown=2)
    running = Uvicorn(config)
    serving = asyncio.ensure_future(running.serve(sockets=[listener]))
    yield small
    running.should_exit = True
    small.is_closing = True
    await small.publish()
    await asyncio.wait_for(serving, 10)
    listener.close()
