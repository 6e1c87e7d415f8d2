"""Socket.IO at /socket.io/: which handshakes are accepted, and the end of all sockets when this process drains."""

import asyncio
from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from everturn.core.clock import iso
from ingress.admission.connections import load_address
from ingress.errors import ProblemError, absent, malformed, problem_response, too_many, unavailable
from ingress.sockets.connection import JOIN_TIMEOUT_S, Connection, SocketDependencies
from ingress.sockets.packets import render_own
from ingress.stream.feed import pick_retry_ms

MAX_QUERY_FIELDS = 100
MAX_JOINING, MAX_JOINING_PER_ADDRESS = 500, 200
"""Sockets that are not authenticated; others don't count."""
QUIET_S = 5
"""Seconds that running calls, and then feeds, get when the server drains; a client without an answer retries with its
idempotency key."""
RESTART = 1012


async def refuse_elsewhere(socket: WebSocket) -> None:
    """Reject a handshake outside /socket.io/ with the 404 that a request there gets."""
    await socket.send_denial_response(problem_response(absent("WebSockets are served at /socket.io/ only.")))


class SocketServer:
    """The ASGI application of all sockets of this process.

    It serves WebSockets only: with long polling, all requests of one client would have to reach the same process.
    """

    def __init__(self, parts: SocketDependencies) -> None:
        self._parts = parts
        self._open: set[Connection] = set()
        self._draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._try_refuse(scope)
        if refusal is None:
            connection = Connection(self._parts, scope, receive, send)
            self._open.add(connection)
            try:
                await connection.run()
            finally:
                self._open.discard(connection)
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
        joining = [connection.address for connection in self._open if connection.session is None]
        if len(joining) >= MAX_JOINING:
            return unavailable("Too many sockets are connecting.")
        if joining.count(load_address(HTTPConnection(scope))) >= MAX_JOINING_PER_ADDRESS:
            return too_many("Too many sockets are connecting from this address.", retry_after_s=JOIN_TIMEOUT_S)
        return None

    async def drain(self, jitter: Callable[[], float]) -> None:
        """Accept no more sockets, send the open ones their reconnect delay, and close them."""
        self._draining = True
        async with asyncio.TaskGroup() as group:
            for connection in self._open:
                ts, retry_ms = iso(self._parts.clock.now()), pick_retry_ms(jitter())
                farewell = {"type": "server.shutdown", "ts": ts, "data": {"retry_ms": retry_ms}}
                group.create_task(
                    connection.close_for_restart(
                        RESTART, "The server is shutting down.", render_own("server_shutdown", farewell), QUIET_S
                    )
                )
