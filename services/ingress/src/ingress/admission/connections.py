"""Connections: their caps, and the address of a request's client.

Before the application runs, the server has replaced the peer by what a trusted proxy reports; other headers are not
read.

A protocol around uvicorn's own limits connections and times. uvicorn has no timeout for the first byte, the last
header, the rest of a rejected body, or a client that does not read its response.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Protocol, cast

import h11
import orjson
import structlog
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from everturn.core.errors import Problem, problem
from ingress.errors import PROBLEM_MIME, ProblemError, headers_too_large, malformed
from ingress.metrics import IngressMetrics

_log = structlog.get_logger(__name__)

UNKNOWN = "unknown"
RECOGNIZED_KEY = "everturn.recognized"
"""In a scope: the function to call once its request is authenticated, so that its connection no longer counts as
unknown."""
CUT_KEY = "everturn.cut"
"""In a scope: the function that closes the connection and drops what its client has not read. The application then
receives `http.disconnect`."""
WRITER_KEY = "everturn.writer"
"""In a scope of HTTP/1.1: a DirectWriter for the body of the response, once its head was sent."""
HOST_BITS = 64
"""The owner of an IPv6 network chooses these bits of an address, so limits apply to the network prefix."""

RETRY_AFTER_S = 5
WRITE_BUFFER_BYTES = 16_384
"""How much can be unsent in addition to the kernel's buffer before the next piece of a response waits. Together with
the stream's queue and the connection itself, a client that never reads costs at most 0.2 MiB. These can be larger: the
snapshot of a large conversation while it is sent (`stream/feed.py` limits how many), the 200 entries that a resuming
client reads at a time, and responses with turns (`conversations/endpoints.py` limits how many)."""
LINGER_S = 2
"""How long a client can keep sending unreadable data until it has received the response: if closed at once, the
connection would be reset and the response lost."""


def load_address(connection: HTTPConnection) -> str:
    """The peer's address in the form that limits use."""
    return build_address(connection.client.host) if connection.client else UNKNOWN


def build_address(host: str) -> str:
    """One canonical form per peer."""
    try:
        address = ip_address(host)
    except ValueError:
        return UNKNOWN
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address), 128 - HOST_BITS), strict=False))


class AddressCounts:
    """Counts unauthenticated connections per address; only this object changes the counts.

    Proxies are not counted: their connections are those of many clients.
    """

    def __init__(self, max_per_address: int, *, proxies: Sequence[IPv4Network | IPv6Network] = ()) -> None:
        self.max_per_address = max_per_address
        self._proxies = tuple(proxies)
        self._open: Counter[str] = Counter()

    def is_full(self, host: str) -> bool:
        """Whether this peer has reached its limit of connections."""
        return self._open[build_address(host)] >= self.max_per_address and not self._is_proxy(host)

    def enter(self, host: str) -> None:
        """Count a connection."""
        self._open[build_address(host)] += 1

    def leave(self, host: str) -> None:
        """Remove a connection from the count."""
        address = build_address(host)
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]

    def _is_proxy(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)


@dataclass(frozen=True, slots=True)
class ConnectionCaps:
    """How many connections a process accepts, how long headers can take, and how long a response can stay unread."""

    connections: int
    headers_s: float
    send_s: float
    addresses: AddressCounts


class DirectWriter(Protocol):
    """Sends pieces of a response without a length past the middlewares, which change only the head, and without a
    task."""

    @property
    def is_free(self) -> bool:
        """Whether the connection is open and its client has not left too much unread."""
        ...

    def write(self, piece: bytes) -> None:
        """Send a piece that is not empty. Only while the connection is free."""
        ...


class BoundedProtocol(H11Protocol):
    """Closes a connection without a running request `headers_s` after it was made or sent the first byte of a request.

    Aborts one whose client reads nothing of its response for `send_s`. The producer of the response then sees a
    disconnect and releases what it holds.
    """

    def __init__(self, *args: Any, caps: ConnectionCaps, metrics: IngressMetrics, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._caps = caps
        self._metrics = metrics
        self._sending: asyncio.TimerHandle | None = None
        self._unread_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._refused = False
        self._heard = False
        self._host = ""
        self._counted = False
        self._application = self.app
        self.app = self._run

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, which reports authenticated requests, and clients that read too slowly."""
        scope[RECOGNIZED_KEY] = self._uncount
        scope[CUT_KEY] = self._cut
        if scope["http_version"] == "1.1":
            scope[WRITER_KEY] = self
        await self._application(scope, receive, send)

    @property
    def is_free(self) -> bool:
        return not self.flow.write_paused and not self.transport.is_closing()

    def write(self, piece: bytes) -> None:
        # A chunk as HTTP/1.1 frames it.
        self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def _count(self) -> None:
        """Count this connection for its address until it serves an authenticated client or is closed."""
        if not self._counted:
            self._counted = True
            self._caps.addresses.enter(self._host)

    def _uncount(self) -> None:
        if self._counted:
            self._counted = False
            self._caps.addresses.leave(self._host)

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if len(self.connections) > self._caps.connections:
            self._refused = True
            self._metrics.refusals.labels(reason="connections", role="none").inc()
            self._end(problem("unavailable", "The service is temporarily unavailable", 503, "Too many connections."))
            return
        self._host = self.client[0] if self.client else ""
        if self._caps.addresses.is_full(self._host):
            self._refused = True
            self._metrics.refusals.labels(reason="address_connections", role="none").inc()
            text = f"This address already has {self._caps.addresses.max_per_address} unauthenticated connections."
            self._end(problem("too-many", "Too many requests", 429, text))
            return
        self._count()
        self._arm()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._heard = True
        super().data_received(data)
        self._check_response()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with a problem, unless a response has begun; uvicorn calls this after an error of h11."""
        cycle = cast(RequestResponseCycle | None, self.cycle)
        self._disarm()
        self._refused = True
        if cycle is not None and not cycle.response_complete:
            begun, cycle.disconnected = cycle.response_started, True
            cycle.message_event.set()
            if begun:
                self.transport.close()
                return
        if self.transport.is_closing():
            return  # the previous response was the last one, so the client expects no other
        self._write(_refuse_unreadable(sys.exception()).answer)
        try:
            self.transport.write_eof()
        except OSError:
            # The client disconnected and the loop has not noticed yet.
            self.transport.abort()
            return
        self.flow.resume_reading()
        self.loop.call_later(LINGER_S, self.transport.close)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._disarm()
        self._forget_sending()
        self._refused = True  # this object receives no more data
        self._uncount()  # sockets that have not joined are counted by the socket server
        super().handle_websocket_upgrade(event)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_sending()

    def _watch_sending(self) -> None:
        """Check later whether the client has read anything meanwhile."""
        self._forget_sending()
        self._unread_bytes = self.transport.get_write_buffer_size()
        if self._unread_bytes:
            self._sending = self.loop.call_later(self._caps.send_s, self._check_sending)

    def _check_sending(self) -> None:
        is_idle = self.flow.write_paused or self._responded()
        # While a response is still written, the same number of bytes can be different ones.
        if not is_idle or self.transport.get_write_buffer_size() < self._unread_bytes:
            self._watch_sending()
            return
        self._cut()

    def _cut(self) -> None:
        if self.transport.is_closing():
            return  # the limits of the connection and of the application can end in the same moment
        self._metrics.stuck.inc()
        waiting_bytes = self.transport.get_write_buffer_size()
        _log.info("Disconnected a client that did not read its response", waiting_bytes=waiting_bytes)
        self.transport.abort()

    def _forget_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _responded(self) -> bool:
        cycle = cast(RequestResponseCycle | None, self.cycle)  # none before the first request, whatever its type says
        return cycle is None or cycle.response_complete

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_sending()
        self._disarm()
        self._count()
        self._heard = False
        if self.conn.their_state is h11.SEND_BODY:
            # The response was a refusal; limit the time for the rest of the body.
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._forget_sending()
        self._uncount()
        super().connection_lost(exc)

    def _check_response(self) -> None:
        if self._refused or not self._responded():
            self._disarm()
        elif self._deadline is None:
            self._arm()

    def _arm(self) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(self._caps.headers_s, self._give_up)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        self._metrics.refusals.labels(reason="slow_headers", role="none").inc()
        if self._heard and self.conn.our_state is h11.IDLE:
            text = f"The headers were not complete after {self._caps.headers_s:g} s."
            self._end(problem("too-slow", "The request was not received in time", 408, text))
        else:
            self.transport.close()

    def _end(self, answer: Problem) -> None:
        self._write(answer)
        self.transport.close()

    def _write(self, answer: Problem) -> None:
        body = orjson.dumps(answer.model_dump(exclude_none=True))
        head = [
            f"HTTP/1.1 {answer.status} {answer.title}",
            f"Content-Type: {PROBLEM_MIME}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *([f"Retry-After: {RETRY_AFTER_S}"] if answer.status in (429, 503) else []),
        ]
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)


def _refuse_unreadable(error: BaseException | None) -> ProblemError:
    if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
        return headers_too_large("The request line and headers are too large.")
    return malformed("This is not an HTTP/1.1 request.")


def bind_protocol(caps: ConnectionCaps, metrics: IngressMetrics) -> Any:
    """The protocol class for uvicorn's `http` option, which accepts any callable that creates one."""
    return partial(BoundedProtocol, caps=caps, metrics=metrics)
