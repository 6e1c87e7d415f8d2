"""The HTTP connection to an MCP server: only addresses that may be contacted, bounded replies, and errors that concern
one request only.

The SDK reads whole replies into memory, ends a session with all its calls when one request can't be sent, and opens
streams again as often as a server asks for it.
"""

import asyncio
import json
import secrets
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final, Protocol, cast

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, REQUEST_TIMEOUT, ErrorData

from chat_proc.mcp.pacing import (
    LINES_PER_MESSAGE,
    MAX_EVENT_LINES,
    MAX_MESSAGE_BYTES,
    PIECE_BYTES,
    Pace,
    TooLarge,
    check_message,
)
from chat_proc.tools.web.client import is_public
from chat_proc.tools.web.resolver import Resolve
from everturn.core.errors import EverturnError, Invalid, Unavailable
from everturn.core.http_bodies import UnreadableBody, unpack
from everturn.core.ids import TurnId
from everturn.core.urls import DEFAULT_PORTS

RESOLVE_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 5.0
NOTIFY_TIMEOUT_S: Final = 5.0
"""For a notification, or an answer to the server: the SDK sends nothing else meanwhile."""
MAX_ADDRESSES: Final = 4
MAX_CONNECTIONS: Final = 32
"""Requests to one server that run at once; others wait."""
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_REPLY_BYTES: Final = 16 * 1024 * 1024
"""All events of the reply to one request together."""
OPEN_AGAIN_S: Final = 1.0
"""Least time between two streams that are opened without a request, whatever the server asks for."""

UNREACHABLE: Final = -32098
"""Error code of a request that was not sent, because there was no connection."""
NOT_SENT: Final = -32096
"""Error code of a request for which there was no room, or no access token."""
REFUSED_STATUS: Final = -32097
"""Error code of a request that the server rejected with a status and no error of the protocol."""
CONNECTION_LOST: Final = -32095
"""Error code of a request whose connection was lost, so that it may have been carried out."""
UNREADABLE: Final = -32092
"""Error code of a request whose reply does not follow the protocol, so that it may have been carried out."""
SESSION_EXPIRED: Final = -32094
"""Error code of a request that the server rejected because it does not know the session."""
SESSION_MAYBE_EXPIRED: Final = -32093
"""Error code of a request whose rejection may mean that the server does not know the session, or something else."""
_OURS: Final = secrets.token_hex(16)
"""The data of these errors: a server could send their codes, too."""
_SDK_LOST: Final = ("Connection closed", "SSE stream ")
"""How messages of the SDK begin when it lost a reply. From a server, CONNECTION_CLOSED is any error of its own."""

_SDK_UNREADABLE: Final = {
    PARSE_ERROR: ("Failed to parse JSON response", "Failed to parse SSE message"),
    INVALID_REQUEST: ("Unexpected content type: ", "server answered a request with 202 Accepted"),
}
"""By code, how messages of the SDK begin when it could not read a reply."""

SET_ISSUER: Final = "Set issuer if its authorization server is in a private network."

Address = IPv4Address | IPv6Address
_FORBIDDEN: Final = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8", "100.100.100.200/32", "168.63.129.16/32", "169.254.0.0/16", "192.0.0.192/32", "224.0.0.0/3",
            "::/128", "fd00:ec2::/32", "fe80::/10", "ff00::/8",
        ),
    )
)  # fmt: skip
"""Link-local, unspecified and multicast networks, and the addresses at which clouds give machines their credentials."""
_NAT64: Final = ip_network("64:ff9b::/96")


def may_contact(address: Address) -> bool:
    """Whether a server may have this address. Private networks are allowed: most servers run in them."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None and not may_contact(inner):
            return False
        if address.scope_id is not None:
            return False
    return not any(address in network for network in _FORBIDDEN)


class HostRules:
    """The hosts that the operator allows: names, or `*.name` for all names below it. Without any, all hosts."""

    def __init__(self, allowed: tuple[str, ...] = ()) -> None:
        self._allowed = allowed

    def allows(self, host: str) -> bool:
        return not self._allowed or any(
            host.endswith(name[1:]) if name.startswith("*.") else host == name for name in self._allowed
        )


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """How the hosts of one agent's server are reached. `owner` shares the threads that resolve names with others."""

    resolve: Resolve
    rules: HostRules
    owner: str
    ssl_context: ssl.SSLContext
    may_contact: Callable[[Address], bool] = may_contact


class NoToken(EverturnError):
    """There is no access token for the server."""


class TokenSource(Protocol):
    """Where the access tokens of one server come from."""

    async def find(self, rejected: str | None = None) -> str:
        """A token; another one than `rejected`, which the server did not accept. Raises NoToken."""
        ...


class HttpServer:
    """The streams of one connection for the SDK. It never ends by itself: each request is a connection of its own.

    `reply_timeout_s` is for a server that sends nothing."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        options: TransportOptions,
        *,
        reply_timeout_s: float,
        tokens: TokenSource | None = None,
    ) -> None:
        self.ended = asyncio.Event()
        self._url = url
        self._headers = {"User-Agent": "Everturn/1.0 (mcp)", **headers}
        self._options = options
        self._tokens = tokens
        self._timeout = httpx2.Timeout(CONNECT_TIMEOUT_S, read=reply_timeout_s)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Any]:
        transport = McpHttpTransport(self._options, self._url, self._tokens)
        async with (
            httpx2.AsyncClient(
                transport=transport, headers=self._headers, timeout=self._timeout, trust_env=False, max_redirects=3
            ) as client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
        ):
            yield streams

    def explain_end(self) -> str:
        return ""


class HostTransport(httpx2.AsyncBaseTransport):
    """Sends requests to hosts that may be contacted. Raises Invalid for others, and Unavailable for unknown ones.

    `own_host` is the host of a server that chooses the addresses: others than it must have TLS and be public."""

    def __init__(self, options: TransportOptions, own_host: str | None = None) -> None:
        self._options = options
        self._own_host = own_host
        limits = httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=4)
        self._inner = httpx2.AsyncHTTPTransport(verify=options.ssl_context, trust_env=False, limits=limits)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Connect to a checked address, even if the name resolves differently later. TLS checks the name."""
        host = request.url.host
        if self._own_host not in (None, host) and request.url.scheme != "https":
            raise Invalid(f"The server names {host!a}, which is another host, without TLS. {SET_ISSUER}")
        failure: Exception | None = None
        for address in await self._find_addresses(host, request.url.port or DEFAULT_PORTS[request.url.scheme]):
            sent = httpx2.Request(
                request.method,
                request.url.copy_with(host=str(address)),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            sent.headers["Host"] = request.url.netloc.decode("ascii")
            sent.headers["Accept-Encoding"] = "identity"
            try:
                return await self._inner.handle_async_request(sent)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        raise failure or Unavailable(f"The host {host!a} has no address.")

    async def _find_addresses(self, host: str, port: int) -> tuple[Address, ...]:
        if not self._options.rules.allows(host):
            raise Invalid(f"The operator does not allow MCP servers at {host!a} (MCP_ALLOWED_HOSTS).")
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                found = [
                    ip_address(text) for text in await self._options.resolve(host, port, TurnId(self._options.owner))
                ]
        except (OSError, ValueError, TimeoutError) as error:
            raise Unavailable(f"The host {host!a} was not found.") from error
        if not all(map(self._options.may_contact, found)):
            raise Invalid(f"{host!a} is at an address that must not be contacted.")
        if self._own_host not in (None, host) and not all(map(is_public, found)):
            raise Invalid(f"The server names {host!a}, which is not at a public address. {SET_ISSUER}")
        return tuple(dict.fromkeys(found))[:MAX_ADDRESSES]

    async def aclose(self) -> None:
        await self._inner.aclose()


class McpHttpTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of one connection. Failures become JSON-RPC errors of the request that failed."""

    def __init__(self, options: TransportOptions, url: str, tokens: TokenSource | None = None) -> None:
        self._inner = HostTransport(options)
        self._origin = _find_origin(httpx2.URL(url))
        self._tokens = tokens
        self._opened_at = -OPEN_AGAIN_S

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        expects_answer = request.method == "POST" and _is_call(request)
        if request.method == "GET":
            await self._wait_to_open()
        try:
            if expects_answer or request.method == "GET":
                response = await self._send(request)
            else:
                async with asyncio.timeout(NOTIFY_TIMEOUT_S):
                    response = await self._send(request)
        except (Invalid, Unavailable) as error:
            return _build_error(503, UNREACHABLE, error.detail)
        except NoToken as error:
            return _build_error(503, NOT_SENT, error.detail)
        except httpx2.PoolTimeout:
            return _build_error(503, NOT_SENT, f"{MAX_CONNECTIONS} other requests to the server are running.")
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            return _build_error(503, UNREACHABLE, f"The connection failed ({_name(error)}).")
        except (httpx2.TransportError, TimeoutError) as error:
            return _build_error(503, CONNECTION_LOST, f"The connection was lost ({_name(error)}).")
        if response.status_code >= 400 and expects_answer:
            return await _read_error(response, has_session="mcp-session-id" in request.headers)
        encoding = response.headers.pop("Content-Encoding", "identity").strip().lower()
        is_event_stream = response.headers.get("Content-Type", "").lower().startswith("text/event-stream")
        limit = None if request.method == "GET" else MAX_REPLY_BYTES if is_event_stream else MAX_MESSAGE_BYTES
        if is_event_stream:
            # Without a character set: events are in UTF-8, as they are checked, but the SDK would read them in another.
            response.headers["Content-Type"] = "text/event-stream"
        body = cast(httpx2.AsyncByteStream, response.stream)
        response.stream = _BoundedBody(body, encoding, limit, is_event_stream=is_event_stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _wait_to_open(self) -> None:
        now_s = asyncio.get_running_loop().time()
        begin_s = max(now_s, self._opened_at + OPEN_AGAIN_S)
        self._opened_at = begin_s
        await asyncio.sleep(begin_s - now_s)

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request with an access token, and again with a new one if the server rejects it."""
        if self._tokens is None or _find_origin(request.url) != self._origin:
            return await self._inner.handle_async_request(request)
        token: str | None = None
        while True:
            # Ends, because the source does not replace one token soon after another.
            token = await self._tokens.find(rejected=token)
            request.headers["Authorization"] = f"Bearer {token}"
            response = await self._inner.handle_async_request(request)
            if response.status_code != 401:
                return response
            await response.aclose()


def _find_origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or DEFAULT_PORTS[url.scheme]


def _is_call(request: httpx2.Request) -> bool:
    """Whether a POST is a request of the protocol, which is answered."""
    if len(request.content) > MAX_ERROR_BYTES:
        return True
    try:
        body = json.loads(request.content)
    except ValueError:
        return True
    return isinstance(body, dict) and "method" in body and "id" in body


async def _read_error(response: httpx2.Response, *, has_session: bool) -> httpx2.Response:
    """The JSON-RPC error in a response with an error status, or one that names the status or says that the session has
    ended."""
    body = bytearray()
    try:
        async with aclosing(unpack(response.aiter_raw(), "identity")) as pieces:
            async for piece in pieces:
                body += piece[: MAX_ERROR_BYTES - len(body)]
                if len(body) >= MAX_ERROR_BYTES:
                    break
    except httpx2.TransportError:
        body.clear()
    finally:
        await response.aclose()
    try:
        parsed: Any = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    found: Any = cast("dict[str, Any]", parsed).get("error") if isinstance(parsed, dict) else None
    error = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    code, message = error.get("code"), str(error.get("message", ""))
    if has_session and response.status_code == 404 and code != METHOD_NOT_FOUND:
        return _build_error(404, SESSION_EXPIRED, message or "The server answered 404.")
    if has_session and response.status_code == 400 and code == CONNECTION_CLOSED:
        return _build_error(400, SESSION_MAYBE_EXPIRED, message)
    if error or response.status_code == 404:
        headers = {"Content-Type": "application/json" if error else "text/plain"}
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body))
    hint = " Check its secret." if response.status_code in (401, 403) else ""
    # A failure at the server, or on the way back, does not show whether the request had an effect.
    code = UNREADABLE if response.status_code >= 500 else REFUSED_STATUS
    return _build_error(response.status_code, code, f"The server answered {response.status_code}.{hint}")


def _build_error(status: int, code: int, message: str) -> httpx2.Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message, "data": _OURS}}
    return httpx2.Response(status, json=error)


def find_transport_error(error: ErrorData) -> int | None:
    """The code of what happened to a request on its way, if that is what the error is about: one of those above, or
    REQUEST_TIMEOUT. Errors that are recognized by the SDK's wording can also come from a server that imitates it."""
    if error.data == _OURS:
        return error.code
    if error.code == CONNECTION_CLOSED and error.data is None and error.message.startswith(_SDK_LOST):
        return CONNECTION_LOST
    if error.code == REQUEST_TIMEOUT and error.message.startswith("Request ") and error.message.endswith("timed out"):
        return REQUEST_TIMEOUT
    return UNREADABLE if error.message.startswith(_SDK_UNREADABLE.get(error.code, ())) else None


def build_unreadable(message: str) -> ErrorData:
    """What `find_transport_error` finds to be UNREADABLE."""
    return ErrorData(code=UNREADABLE, message=message, data=_OURS)


def _name(error: Exception) -> str:
    return type(error).__name__


class _BoundedBody(httpx2.AsyncByteStream):
    """Yields whole messages. For one that is too large, raises what the SDK takes as the end of one request only."""

    def __init__(
        self, body: httpx2.AsyncByteStream, encoding: str, max_bytes: int | None, *, is_event_stream: bool
    ) -> None:
        self._body = body
        self._encoding = encoding
        self._max_bytes = max_bytes
        self._is_event_stream = is_event_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, held, pace, after_return = 0, bytearray(), Pace(), False
        try:
            async with aclosing(unpack(self._body, self._encoding)) as pieces:
                async for piece in pieces:
                    size += len(piece)
                    if self._max_bytes is not None and size > self._max_bytes:
                        raise TooLarge(f"The reply has more than {self._max_bytes} bytes.")
                    events, values = b"", 0
                    if self._is_event_stream:
                        new = _unify_line_ends(piece, after_return=after_return)
                        after_return = piece.endswith(b"\r")
                        # An empty line ends an event. What was searched for one before is not searched again.
                        begin = max(len(held) - 1, 0)
                        held += new
                        if (at := held.rfind(b"\n\n", begin)) >= 0:
                            events = bytes(held[: at + 2])
                            del held[: at + 2]
                            values = sum(_check_event(event) for event in events.split(b"\n\n"))
                    else:
                        held += piece
                    messages = events.count(b"\n\n") + events.count(b"\n") // LINES_PER_MESSAGE
                    await pace.wait(messages, max(len(piece), PIECE_BYTES), values)
                    if events:
                        yield events
                    if len(held) > MAX_MESSAGE_BYTES:
                        raise TooLarge(f"A message has more than {MAX_MESSAGE_BYTES} bytes.")
            rest = bytes(held)
            (_check_event if self._is_event_stream else check_message)(rest)
            yield rest
        except (UnreadableBody, TooLarge) as error:
            raise (httpx2.SSEError if self._is_event_stream else httpx2.StreamError)(error.detail) from error

    async def aclose(self) -> None:
        await self._body.aclose()


def _check_event(event: bytes) -> int:
    """About how many values an event has. Raises TooLarge if its lines or data are more than may be parsed on the event
    loop."""
    if event.count(b"\n") > MAX_EVENT_LINES:
        raise TooLarge(f"An event has more than {MAX_EVENT_LINES} lines.")
    # The SDK parses only these. A quote in another line would make texts of values, and values of texts.
    data = [line.removeprefix(b"data:") for line in event.split(b"\n") if line.startswith(b"data:")]
    return check_message(b"\n".join(data))


def _unify_line_ends(piece: bytes, *, after_return: bool) -> bytes:
    """The piece with LF for each CR LF and CR, as the SDK reads it. `after_return`: the piece before ended with CR."""
    rest = piece.removeprefix(b"\n") if after_return else piece
    return rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
