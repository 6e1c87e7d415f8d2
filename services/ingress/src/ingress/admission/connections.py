"""Connections: their caps, and the address of a request's client.

Before the application runs, the server has replaced the peer by what a trusted proxy reports; other headers are not
read.

A protocol around uvicorn's own limits connections and times. uvicorn has no timeout for the first byte, the last
header, the rest of a rejected body, or a client that does not read its response. It also has no limit for the size of
headers, and accepts requests that other servers could read differently.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Protocol, cast

import httptools
import orjson
import structlog
from starlette.requests import HTTPConnection
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from everturn.core.errors import Problem, problem
from ingress.errors import PROBLEM_MIME, ProblemError, headers_too_large, internal_error, malformed
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

HEADER_BUFFER_BYTES = 65_536
"""How many bytes can arrive without completing the head of a request or continuing its body, in addition to what is
read at once. The application's own cap for headers is smaller, and counts the requests that it rejects."""
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
        """Whether the body of the response has begun and can go on, and its client has not left too much unread."""
        ...

    def write(self, piece: bytes) -> None:
        """Send a piece that is not empty. Only while the connection is free."""
        ...


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection without a running request `headers_s` after it was made or sent the first byte of a request.

    Aborts one whose client reads nothing of its response for `send_s`. The producer of the response then sees a
    disconnect and releases what it holds.

    Reads one request at a time: if another one follows before the response, the connection is closed after the
    response, and the client has to send that request again (RFC 9112, 9.3.2).
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
        self._in_body = False
        self._unparsed_bytes = 0
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
        else:
            send = _send_unframed(self.cycle, send)
        await self._application(scope, receive, send)

    @property
    def is_free(self) -> bool:
        cycle = self.cycle
        is_open = cycle.response_started and not cycle.response_complete and not cycle.disconnected
        is_framed = bool(cycle.chunked_encoding)
        return is_open and is_framed and not self.flow.write_paused and not self.transport.is_closing()

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
        self._unset_keepalive_if_required()
        self._unparsed_bytes += len(data)
        try:
            self._parse(data)
            if self._unparsed_bytes > HEADER_BUFFER_BYTES:
                raise headers_too_large("The request line and headers are too large.")
        except (httptools.HttpParserError, ProblemError) as error:
            # The parser reports an error of one of the methods below as the context of its own.
            reason = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
            self._refuse(self._translate_error(reason))
        self._check_response()

    def _translate_error(self, error: BaseException | None) -> ProblemError:
        """The response to what was raised while a request was read; logs what no client can cause."""
        match error:
            case ProblemError():
                return error
            case httptools.HttpParserError() | UnicodeDecodeError():
                return malformed("This is not an HTTP/1.1 request.")
            case _:
                self._metrics.unhandled.inc()
                _log.error("Unhandled error while a request was read", exc_info=error)
                return internal_error()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
            return
        except httptools.HttpParserUpgrade as upgrade:
            parsed = upgrade.args[0]
        # Not in the handler: an error of the second pass would have this one as its context.
        if self._should_upgrade():
            self.handle_websocket_upgrade()
            return
        # The request is served without the offered upgrade, usually to HTTP/2. The parser takes what follows the head
        # for the other protocol, so it gets the head again without the offer.
        version = self.parser.get_http_version().encode()
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/", version, b"\r\n"]
        for name, value in self.headers:
            head += [name, b": ", value, b"\r\n"] if name != b"upgrade" else []
        self.parser = httptools.HttpRequestParser(self)
        self._parse(b"".join([*head, b"\r\n", data[parsed:]]))

    def on_message_begin(self) -> None:
        if not self._responded():
            raise malformed("The previous request was not answered yet.")
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # The fields after a chunked body are not headers, and nothing here uses them.
        if not self._in_body:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        self._in_body = True
        self._unparsed_bytes = 0
        version = self.parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if version not in ("1.0", "1.1"):
            raise malformed("This is not an HTTP/1.1 request.")
        if hosts > 1 or (not hosts and version == "1.1"):
            raise malformed("Send exactly one Host header.")
        if not self.url.startswith(b"/") or b"#" in self.url:
            raise malformed("The target of a request must be a path.")
        if codings not in ([], [b"chunked"]):
            raise malformed("The only transfer coding is `chunked`.")
        if codings and version == "1.0":
            raise malformed("HTTP/1.0 has no transfer codings.")
        if not self.parser.should_upgrade() or self._should_upgrade():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _refuse(self, reason: ProblemError) -> None:
        """Answer what can't be read with a problem, unless a response has begun or must come first."""
        self._disarm()
        self._refused = True
        if not self._responded():
            if not self._in_body:
                # It follows a complete request, whose response is the last one.
                self.cycle.keep_alive = False
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        if self.transport.is_closing():
            return  # the previous response was the last one, so the client expects no other
        self._write(reason.answer)
        try:
            self.transport.write_eof()
        except OSError:
            # The client disconnected and the loop has not noticed yet.
            self.transport.abort()
            return
        self.flow.resume_reading()
        self.loop.call_later(LINGER_S, self.transport.close)

    def handle_websocket_upgrade(self) -> None:
        self._disarm()
        self._forget_sending()
        self._refused = True  # this object receives no more data
        self._uncount()  # sockets that have not joined are counted by the socket server
        super().handle_websocket_upgrade()

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
        if self._in_body:
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
        if self._heard and not self._in_body:
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


def _send_unframed(cycle: RequestResponseCycle, send: Send) -> Send:
    """Send to a client of HTTP/1.0, which knows no chunks: a body without a length ends with the connection.

    The server closes each of these connections and says so, whatever the application wants.
    """
    has_length = False

    async def send_unframed(message: Message) -> None:
        nonlocal has_length
        if message["type"] == "http.response.start":
            headers = [(name, value) for name, value in message.get("headers", ()) if name.lower() != b"connection"]
            message = {**message, "headers": headers}
            has_length = any(name.lower() == b"content-length" for name, _ in headers)
            if not has_length:
                cycle.chunked_encoding = False
        elif not has_length:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    return send_unframed


def bind_protocol(caps: ConnectionCaps, metrics: IngressMetrics) -> Any:
    """The protocol class for uvicorn's `http` option, which accepts any callable that creates one."""
    return partial(BoundedProtocol, caps=caps, metrics=metrics)
