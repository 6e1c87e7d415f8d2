"""Which addresses the web tools may connect to: public ones only, every answer of the resolver checked."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from everturn.errors import Invalid, Unavailable

RESOLVE_TIMEOUT_S = 5.0
MAX_ADDRESSES = 4
WEB_PORTS = frozenset({80, 443})

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
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
"""Private, shared, loopback, link-local, reserved and multicast networks, and the address of a cloud's host agent."""
_OPEN_V6 = ip_network("2000::/3")
"""All that is routed in IPv6; what stands below carries an IPv4 address or is set apart."""
_CLOSED_V6 = tuple(map(ip_network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))


class Refused(Invalid):
    """The web tools don't go there."""


def is_public(address: Address) -> bool:
    """Whether an address is one of the open internet. One that carries an IPv4 address inside never is."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED)
    return address.scope_id is None and address in _OPEN_V6 and not any(address in network for network in _CLOSED_V6)


class AddressGuard:
    """Resolves a host and gives the addresses to connect to; what was checked is what is connected to."""

    def __init__(
        self,
        resolve: Resolve | None = None,
        *,
        is_allowed: Callable[[Address], bool] = is_public,
        ports: Collection[int] = WEB_PORTS,
    ) -> None:
        self._resolve = resolve or _resolve
        self._is_allowed = is_allowed
        self._ports = ports

    def check_port(self, port: int) -> None:
        """Raises Refused."""
        if port not in self._ports:
            allowed = " and ".join(map(str, sorted(self._ports)))
            raise Refused(f"Port {port} is not open to the web tools; {allowed} are.")

    async def find_addresses(self, host: str, port: int) -> tuple[str, ...]:
        """At most four, all allowed. Raises Refused when one of all is not, Unavailable when there are none."""
        self.check_port(port)
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                found = [ip_address(text) for text in await self._resolve(host, port)]
        except (OSError, UnicodeError, TimeoutError) as error:
            raise Unavailable(f"The host {host!a} can't be found.") from error
        if not found:
            raise Unavailable(f"The host {host!a} has no address.")
        if not all(map(self._is_allowed, found)):
            raise Refused(f"{host!a} is not on the open internet.")
        return tuple(str(address) for address in dict.fromkeys(found))[:MAX_ADDRESSES]


async def _resolve(host: str, port: int) -> Sequence[str]:
    answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in answers]
