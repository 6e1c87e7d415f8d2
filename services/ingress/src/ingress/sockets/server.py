"""Socket.IO at /socket.io/: admission of sockets, their credentials, the dispatch of calls, and shutdown."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import parse_qs

import structlog
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from everturn.core.clock import Clock, iso
from everturn.core.errors import EverturnError
from everturn.core.loops import guarded
from everturn.core.tracing import Tracing
from ingress.admission.connections import load_address
from ingress.admission.edge import internal_error
from ingress.admission.limits import Drawn, RequestLimits, load_drawn
from ingress.admission.metrics import IngressMetrics
from ingress.admission.slots import OpenSlots
from ingress.auth.gate import AuthGate, Caller
from ingress.errors import (
    ProblemError,
    absent,
    malformed,
    problem_response,
    too_many,
    translate_error,
    unauthorized,
    unavailable,
    unprocessable,
)
from ingress.sockets.calls import Answer, ChatCalls, Payload, check_form, open_call_span, tell_status
from ingress.sockets.connection import POLICY, Admitted, Connection
from ingress.sockets.guard import SocketCaps, SocketGuard
from ingress.sockets.library import build_library, refuse_connection
from ingress.sockets.packets import build_answer, build_problem, build_refusal, render_own
from ingress.sockets.schemas import AuthIn, LimitsOut, SessionInfo
from ingress.sockets.subscriptions import MAX_SUBSCRIPTIONS, Subscriptions
from ingress.sockets.websocket import load_line
from ingress.stream.feed import Feed, pick_retry_ms
from ingress.stream.hub import Hub
from ingress.stream.recheck import Recheck

# Ends sockets whose credential has expired, or whose caller would be rejected now.


class Joined(Protocol):
    """A socket whose client is authenticated."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the socket."""
        ...

    def dismiss(self, refusal: ProblemError) -> None:
        """End the session and send the client the reason."""
        ...


def check_credential(socket: Joined, admitted: Admitted, now: float) -> None:
    """Dismiss the socket if its credential has expired by `now` (Unix time). If a recheck of the caller is due, start
    it as a task of its own: a database that does not answer delays no other socket."""
    expires_at = admitted.caller.expires_at
    if expires_at is not None and expires_at <= now:
        socket.dismiss(unauthorized("The credential has expired."))
    elif admitted.standing.is_due:
        socket.start(_recheck(socket, admitted))


async def _recheck(socket: Joined, admitted: Admitted) -> None:
    refusal = await admitted.standing.try_refusal()
    if refusal is not None:
        socket.dismiss(refusal)


JOIN_TIMEOUT_S = 10
"""Seconds from the opening of the WebSocket until the client must be authenticated."""
MAX_QUERY_FIELDS = 100
MAX_JOINING = 500
"""Sockets that are not authenticated; others don't count. Each address has a smaller limit of its own."""
SWEEP_S = 1
QUIET_S = 5
"""Seconds that running calls get when the server drains; a client without an answer retries with its idempotency
key."""
RESTART = 1012
MAX_CALL_S = 300
WRITING = frozenset({"chat_message", "chat_signal"})

_KEY = "everturn.socket"
_log = structlog.get_logger(__name__)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SocketParts:
    """What sockets share with the HTTP endpoints."""

    auth: AuthGate
    front: RequestLimits
    calls: ChatCalls
    hub: Hub
    feed: Feed
    slots: OpenSlots
    metrics: IngressMetrics
    clock: Clock
    message_bytes: int
    calls_per_s: float
    joining_per_address: int
    send_timeout_s: float
    recheck: Recheck
    tracing: Tracing


@dataclass(slots=True, eq=False)
class _Session:
    """A connection with its subscriptions; `http` is its handshake."""

    http: HTTPConnection
    connection: Connection
    subscriptions: Subscriptions
    address: str
    ending: bool = False

    def end(self, work: Coroutine[Any, Any, None]) -> None:
        """End the session in a task, once: with a client that does not read this takes seconds."""
        if self.ending:
            work.close()
        else:
            self.ending = True
            self.start(work)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the socket."""
        self.subscriptions.start(work)

    def dismiss(self, refusal: ProblemError) -> None:
        """End the session and send the client the reason."""
        self.end(self.connection.dismiss(build_refusal(refusal)))


async def refuse_elsewhere(socket: WebSocket) -> None:
    """Reject a handshake outside /socket.io/ with the 404 that a request there gets."""
    await socket.send_denial_response(problem_response(absent("WebSockets are served at /socket.io/ only.")))


class SocketServer:
    """The ASGI application of all sockets of this process."""

    def __init__(self, parts: SocketParts) -> None:
        self._parts = parts
        self._table = parts.calls.table()
        self._open: set[_Session] = set()
        self._sessions: dict[str, _Session] = {}
        self._draining = False
        names = {*self._table, "conv_subscribe", "conv_unsubscribe"}
        caps = parts.calls.caps
        self._caps = SocketCaps(parts.message_bytes, caps.json_bytes, caps.files, parts.calls_per_s, frozenset(names))
        self._library = build_library(max_bytes=parts.message_bytes)
        self._library.on("connect", self._connect)
        self._library.on("disconnect", self._forget)
        for name in names:
            self._library.on(name, partial(self._call, name))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._try_refuse(scope)
        if refusal is None:
            await self._serve(scope, receive, send)
            return
        self._parts.metrics.socket_refusals.labels(reason=refusal.kind).inc()
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(problem_response(refusal))
        else:
            await problem_response(refusal)(scope, receive, send)

    def _try_refuse(self, scope: Scope) -> ProblemError | None:
        """Why the handshake is rejected: 400 for another transport or version, 429 or 503 when there is no room."""
        try:
            query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=MAX_QUERY_FIELDS, separator="&")
        except ValueError:
            return malformed(f"The query has more than {MAX_QUERY_FIELDS} fields.")
        if scope["type"] != "websocket" or query.get("transport") != ["websocket"]:
            return malformed('Socket.IO is served over WebSocket only; set transports: ["websocket"].')
        if query.get("EIO") != ["4"] or "sid" in query or "j" in query:
            return malformed("Use a Socket.IO client of version 3 or later.")
        if self._draining:
            return unavailable("This server is shutting down.")
        joining = [session.address for session in self._open if not session.connection.joined]
        if len(joining) >= MAX_JOINING:
            return unavailable("Too many sockets are connecting.")
        if joining.count(load_address(HTTPConnection(scope))) >= self._parts.joining_per_address:
            return too_many("Too many sockets are connecting from this address.", retry_after_s=JOIN_TIMEOUT_S)
        return None

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        line, clock = load_line(scope), self._parts.clock
        guard = SocketGuard(self._caps, clock.monotonic)
        connection = Connection(
            receive,
            send,
            line=line,
            guard=guard,
            metrics=self._parts.metrics,
            max_bytes=self._parts.message_bytes,
            send_timeout_s=self._parts.send_timeout_s,
        )
        async with asyncio.TaskGroup() as group:
            following = Subscriptions(connection, hub=self._parts.hub, feed=self._parts.feed, group=group)
            http = HTTPConnection(scope)
            session = scope[_KEY] = _Session(http, connection, following, load_address(http))
            self._open.add(session)
            self._parts.metrics.sockets.inc()
            deadline = asyncio.get_running_loop().call_later(
                JOIN_TIMEOUT_S, lambda: None if connection.joined else line.abort()
            )
            try:
                await self._library.handle_request(scope, connection.receive, connection.send)
            finally:
                deadline.cancel()
                connection.end()
                self._open.discard(session)
                self._parts.metrics.sockets.dec()
                following.end()
                await self._release(connection)

    async def _release(self, connection: Connection) -> None:
        """Wait for running calls, then release the slot: like requests, calls finish when their client disconnects.

        Otherwise a client that disconnects after each message could run any number of calls.
        """
        if connection.admitted is None:
            return
        try:
            await connection.wait_quiet(MAX_CALL_S)
        finally:
            connection.admitted.hold.release()
            self._parts.slots.give_back(connection.admitted.caller.principal)

    async def _connect(self, sid: str, environ: dict[str, Any], auth: object) -> None:
        """The library's connect handler: decides whether a client can join."""
        session = cast(_Session, environ["asgi.scope"][_KEY])
        refusal = await self._run(self._admit(session, auth))
        if isinstance(refusal, ProblemError):
            self._parts.metrics.socket_refusals.labels(reason=refusal.kind).inc()
            drawn = load_drawn(session.http.scope)
            if drawn is not None:
                await drawn.settle(refusal.answer.status)
            raise refuse_connection(refusal.detail, build_problem(refusal))
        self._sessions[sid] = session

    async def _admit(self, session: _Session, auth: object) -> None:
        """Raises problems: 401, 403, 404, 422, 429, 503."""
        connection = session.connection
        who = check_form(AuthIn, cast(Payload, {} if auth is None else auth))
        token = _read_token(session.http.headers, who)
        with self._parts.front.guard.watching(session.address, token or ""):
            caller = await self._parts.auth.authenticate_socket(
                token, session.http.headers, tenant=who.tenant, project=who.project
            )
        await self._parts.front.admit(session.http, caller.principal, write=False)
        if connection.closed or self._draining:
            raise unavailable("The socket is closed.")
        self._parts.slots.take(caller.principal)
        connection.admitted = Admitted(
            caller=caller,
            standing=self._parts.recheck.begin(caller),
            session_info=self._describe(caller).model_dump(mode="json"),
            hold=self._parts.front.bodies.open(caller.principal),
            draw=partial(self._draw, session.http, caller),
        )

    async def _draw(self, http: HTTPConnection, caller: Caller, name: str | None) -> Drawn | ProblemError | None:
        write = name is None or name in WRITING
        return await self._run(self._parts.front.admit(http, caller.principal, write=write))

    def _describe(self, caller: Caller) -> SessionInfo:
        me, caps = caller.principal, self._parts.calls.caps
        limits = LimitsOut(
            message_bytes=self._caps.message_bytes,
            text_chars=caps.text_chars,
            files=caps.files,
            subscriptions=MAX_SUBSCRIPTIONS,
            events_per_s=self._caps.calls_per_s,
        )
        return SessionInfo(
            user_id=me.user_id,
            tenant=me.tenant,
            project=me.project,
            roles=tuple(sorted(me.roles)),
            expires_at=caller.expires_at,
            limits=limits,
        )

    async def _forget(self, sid: str, reason: object = None) -> None:
        self._sessions.pop(sid, None)

    async def _call(self, name: str, sid: str, *payload: object) -> dict[str, Any]:
        """Answer a call with the status and body that REST would return."""
        session = self._sessions.get(sid)
        if session is None:
            return build_refusal(unavailable("The socket is closed."))
        held = session.connection.begin_call()
        try:
            answer = await self._answer(session, name, payload)
            if isinstance(answer, ProblemError):
                await held.settle(answer)
        finally:
            session.connection.end_call(held)
        if isinstance(answer, ProblemError):
            return build_refusal(answer)
        status, body = answer
        return build_answer(status, body.model_dump(mode="json"))

    async def _answer(self, session: _Session, name: str, payload: tuple[object, ...]) -> Answer | ProblemError:
        caller = session.connection.caller
        tenant = caller.principal.tenant if caller else ""
        with open_call_span(self._parts.tracing, name, session.http.scope, tenant=tenant, payload=payload) as span:
            answer = await self._run(self._admit_call(session, name, payload))
            tell_status(span, answer.answer.status if isinstance(answer, ProblemError) else answer[0])
            return answer

    async def _admit_call(self, session: _Session, name: str, payload: tuple[object, ...]) -> Answer:
        caller = session.connection.caller
        if caller is None:
            raise unauthorized("The socket has not joined.")
        if len(payload) != 1 or not isinstance(payload[0], dict):
            raise unprocessable("A call must have one object as its payload.")
        fields = cast(Payload, payload[0])
        match name:
            case "conv_subscribe":
                return await session.subscriptions.subscribe(fields)
            case "conv_unsubscribe":
                return await session.subscriptions.unsubscribe(fields)
            case _:
                return await self._table[name](caller, fields)

    async def _run(self, work: Awaitable[Result]) -> Result | ProblemError:
        """The edge of sockets: an exception becomes the answer to its call."""
        try:
            return await work
        except ProblemError as error:
            return error
        except Exception as error:  # noqa: BLE001 - the edge of sockets
            translated = translate_error(error) if isinstance(error, EverturnError) else None
            if translated is None:
                self._parts.metrics.unhandled.inc()
                _log.exception("unhandled error in a socket's call")
            return translated or internal_error()

    async def run(self) -> None:
        """Close sockets whose message is late, or whose credential has expired or was revoked, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            for session in [*self._open]:
                with guarded("socket_deadline"):
                    if session.connection.is_late(loop.time()):
                        session.end(session.connection.close(POLICY, "The message was not received in time."))
            now = self._parts.clock.now().timestamp()
            for session in [*self._sessions.values()]:
                with guarded("socket_credential"):
                    if session.connection.admitted is not None:
                        check_credential(session, session.connection.admitted, now)

    async def drain(self, jitter: Callable[[], float]) -> None:
        """Accept no more sockets, send the open ones their reconnect delay, and close them."""
        self._draining = True
        sessions = [*self._open]
        if sessions:
            await asyncio.wait([asyncio.create_task(self._bid_farewell(session, jitter)) for session in sessions])

    async def _bid_farewell(self, session: _Session, jitter: Callable[[], float]) -> None:
        await session.connection.wait_quiet(QUIET_S)
        if session.subscriptions.count:
            await session.subscriptions.wait_ended(QUIET_S)
        ts, retry_ms = iso(self._parts.clock.now()), pick_retry_ms(jitter())
        farewell = {"type": "server.shutdown", "ts": ts, "data": {"retry_ms": retry_ms}}
        last = [render_own("server_shutdown", farewell)] if session.connection.joined else []
        await session.connection.close(RESTART, "The server is shutting down.", last=last)


def _read_token(headers: Headers, who: AuthIn) -> str | None:
    """The client's token; clients other than browsers can send it in the handshake's header instead."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if not scheme:
        return who.token
    if who.token is not None or scheme.lower() != "bearer" or len(headers.getlist("authorization")) > 1:
        raise unauthorized("Send one token.")
    return value.strip()
