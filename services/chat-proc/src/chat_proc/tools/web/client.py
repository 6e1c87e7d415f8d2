"""Requests of the web tools: only public addresses, every resolved address checked, with limits on bytes and time."""

import asyncio
import ssl
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass
from email.message import Message
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import cast
from urllib.parse import SplitResult, urljoin, urlsplit

import httpcore2

from chat_proc.catalog.call_policy import matches_host
from chat_proc.tools.web.resolver import Resolve
from everturn.core.errors import Invalid, Unavailable
from everturn.core.http_bodies import UnreadableBody, unpack
from everturn.core.ids import TurnId
from everturn.core.urls import DEFAULT_PORTS, MAX_URL_CHARS, canonical_url

RESOLVE_TIMEOUT_S = 5.0
MAX_ADDRESSES = 4
WEB_PORTS = frozenset({80, 443})

Address = IPv4Address | IPv6Address
_CLOSED = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16",
            "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
            "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        ),
    )
)  # fmt: skip
"""Private, shared, loopback, link-local, reserved and multicast networks, and the address of a cloud provider's host
agent."""
_OPEN_V6 = ip_network("2000::/3")
"""All routed IPv6 addresses; the networks below embed an IPv4 address or are reserved."""
_CLOSED_V6 = tuple(map(ip_network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))

MAX_REDIRECTS = 5
MAX_BODY_BYTES = 5 * 1024 * 1024
MAX_PDF_BYTES = 15 * 1024 * 1024
"""A PDF is read entirely or not at all, and is larger than a page."""
MAX_HEADER_CHARS = 300
"""Limit of a content type: the parsing library is quadratic in its length."""
FETCH_TIMEOUT_S = 20.0
_STEP_TIMEOUTS = {"connect": 5.0, "read": 10.0, "write": 5.0, "pool": 5.0}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS: dict[bytes | str, bytes | str] = {
    "User-Agent": "Everturn/1.0 (web_fetch)",
    "Accept": "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,application/pdf;q=0.5",
    "Accept-Encoding": "gzip",
}
_NETWORK_ERRORS = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError)


class Refused(Invalid):
    """The web tools must not request this address."""


def is_public(address: Address) -> bool:
    """Whether an address is on the public internet. An address that embeds an IPv4 address never counts."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED)
    return address.scope_id is None and address in _OPEN_V6 and not any(address in network for network in _CLOSED_V6)


class AddressGuard:
    """Resolves a host to the addresses to connect to; connections use exactly the checked addresses."""

    def __init__(
        self,
        resolve: Resolve,
        *,
        is_allowed: Callable[[Address], bool] = is_public,
        ports: Collection[int] = WEB_PORTS,
    ) -> None:
        self._resolve = resolve
        self._is_allowed = is_allowed
        self._ports = ports

    def check_port(self, port: int) -> None:
        """Raises Refused."""
        if port not in self._ports:
            allowed = " and ".join(map(str, sorted(self._ports)))
            raise Refused(f"The web tools can't use port {port}, only {allowed}.")

    async def find_addresses(self, host: str, port: int, turn_id: TurnId) -> tuple[str, ...]:
        """At most four addresses, all allowed. Raises Refused if any resolved one is not, Unavailable if there are
        none."""
        self.check_port(port)
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                found = [ip_address(text) for text in await self._resolve(host, port, turn_id)]
        except (OSError, UnicodeError, TimeoutError) as error:
            raise Unavailable(f"The host {host!a} was not found.") from error
        if not found:
            raise Unavailable(f"The host {host!a} has no address.")
        if not all(map(self._is_allowed, found)):
            raise Refused(f"{host!a} is not on the public internet.")
        return tuple(str(address) for address in dict.fromkeys(found))[:MAX_ADDRESSES]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page as received. `url` is its final address; `cut` means that it is longer than the part that was read."""

    url: str
    mime: str
    charset: str | None
    body: bytes
    cut: bool


class WebClient:
    """Fetches pages from the public internet: guarded connections, and limits on redirects, bytes and time.

    Keeps no connections and no cookies between pages.
    """

    def __init__(
        self,
        guard: AddressGuard,
        *,
        is_denied: Callable[[str], bool] = lambda _: False,
        ssl_context: ssl.SSLContext | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_pdf_bytes: int = MAX_PDF_BYTES,
        timeout_s: float = FETCH_TIMEOUT_S,
    ) -> None:
        self._guard = guard
        self._is_denied = is_denied
        self._ssl_context = ssl_context
        self._max_body_bytes = max_body_bytes
        self._max_pdf_bytes = max_pdf_bytes
        self._timeout_s = timeout_s
        self._only_hosts: tuple[str, ...] = ()

    def limit_to(self, hosts: Sequence[str]) -> "WebClient":
        """The same client for pages of these hosts only, also where a page redirects."""
        limited = copy(self)
        limited._only_hosts = tuple(hosts)
        return limited

    async def fetch(self, url: str, turn_id: TurnId) -> Fetched:
        """Fetch a page for a turn.

        Raises Refused or Invalid for a page that must not be fetched, Unavailable for one that can't be fetched now.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._follow(url, turn_id)
        except TimeoutError as error:
            raise Unavailable(f"The page did not load within {self._timeout_s:g} s.") from error
        except _NETWORK_ERRORS as error:
            raise Unavailable(f"The connection failed ({type(error).__name__}).") from error

    async def _follow(self, url: str, turn_id: TurnId) -> Fetched:
        if self._ssl_context is None:
            self._ssl_context = await asyncio.to_thread(httpcore2.default_ssl_context)
        pool = httpcore2.AsyncConnectionPool(
            ssl_context=self._ssl_context, network_backend=_GuardedBackend(self._guard, turn_id), max_connections=1
        )
        async with pool:
            for _ in range(MAX_REDIRECTS + 1):
                url = await asyncio.to_thread(self._check_url, url)
                got = await self._get(pool, url)
                if isinstance(got, Fetched):
                    return got
                url = got
        raise Invalid(f"The page redirects more than {MAX_REDIRECTS} times.")

    def _check_url(self, url: str) -> str:
        """The address as requested: in ASCII, without its fragment."""
        canonical = canonical_url(url)
        parts = urlsplit(canonical)
        if self._is_denied(parts.hostname or ""):
            raise Refused(f"The operator does not allow pages of {parts.hostname!a}.")
        if self._only_hosts and not matches_host(parts.hostname or "", self._only_hosts):
            raise Refused(f"This agent can't read pages of {parts.hostname!a}.")
        self._guard.check_port(_port_of(parts))
        return canonical

    async def _get(self, pool: httpcore2.AsyncConnectionPool, url: str) -> Fetched | str:
        """The page, or the address to which it redirects."""
        async with pool.stream("GET", url, headers=_HEADERS, extensions={"timeout": _STEP_TIMEOUTS}) as response:
            headers = {name.decode("latin-1").lower(): _read_value(value) for name, value in response.headers}
            if response.status in _REDIRECTS and "location" in headers:
                return _join(url, headers["location"])
            if response.status >= 400:
                raise Unavailable(f"The server answered {response.status}.")
            mime, charset = _content_type(headers)
            cap = self._max_pdf_bytes if mime == "application/pdf" else self._max_body_bytes
            body, cut = await _read(response.aiter_stream(), headers.get("content-encoding", "identity"), cap)
            return Fetched(url, mime, charset, body, cut)


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to a checked address, even if the name resolves differently later. TLS checks the name."""

    def __init__(self, guard: AddressGuard, turn_id: TurnId) -> None:
        self._guard = guard
        self._turn_id = turn_id
        # Typed as its base: the library leaves the class untyped if anyio is missing.
        self._inner = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's own signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        failure: Exception | None = None
        for address in await self._guard.find_addresses(host, port, self._turn_id):
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or Unavailable(f"{host!a} has no address.")


async def _read(chunks: AsyncIterable[bytes], encoding: str, cap: int) -> tuple[bytes, bool]:
    """The decompressed body up to `cap` bytes, and whether it is longer. Raises Unavailable."""
    body = bytearray()
    try:
        async with aclosing(unpack(chunks, encoding.strip().lower())) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > cap:
                    return bytes(body[:cap]), True
    except UnreadableBody as error:
        raise Unavailable(error.detail) from error
    return bytes(body), False


def _read_value(value: bytes) -> str:
    """Decode a header's value: some servers send addresses in UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _join(url: str, location: str) -> str:
    if len(location) > MAX_URL_CHARS:
        raise Unavailable(f"The page redirects to an address of {len(location)} characters.")
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise Unavailable(f"The page redirects to {location[:80]!a}, which is not an address.") from error


def _content_type(headers: Mapping[str, str]) -> tuple[str, str | None]:
    message = Message()
    message["content-type"] = headers.get("content-type", "application/octet-stream")[:MAX_HEADER_CHARS]
    try:
        return message.get_content_type(), message.get_content_charset()
    except ValueError:  # a charset name with a percent-encoded NUL
        return message.get_content_type(), None


def _port_of(parts: SplitResult) -> int:
    return DEFAULT_PORTS.get(parts.scheme.lower(), 0) if parts.port is None else parts.port
