"""Where a request came from: the peer of its connection, or what a proxy says of it that the operator trusts.

The server has replaced the peer by what a trusted proxy says before the application runs; other headers are not read.
"""

from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from starlette.requests import HTTPConnection

UNKNOWN = "unknown"
RECOGNIZED_KEY = "everturn.recognized"
"""In a scope: what to call when its request was authenticated, so that its connection no longer counts as nobody's."""
HOST_BITS = 64
"""Of an IPv6 address these are its owner's to choose, so the network in front of them is who is limited."""


def load_address(connection: HTTPConnection) -> str:
    """The peer's address in the form that limits are kept by."""
    return build_address(connection.client.host) if connection.client else UNKNOWN


def build_address(host: str) -> str:
    """One form for each peer."""
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
    """How many connections of each address serve nobody who is known; only this object changes the counts.

    A proxy is not counted: its connections are those of many clients.
    """

    def __init__(self, max_per_address: int, *, proxies: Sequence[IPv4Network | IPv6Network] = ()) -> None:
        self.max_per_address = max_per_address
        self._proxies = tuple(proxies)
        self._open: Counter[str] = Counter()

    def is_full(self, host: str) -> bool:
        """Whether this peer has as many connections as it may have."""
        return self._open[build_address(host)] >= self.max_per_address and not self._is_proxy(host)

    def enter(self, host: str) -> None:
        """One more."""
        self._open[build_address(host)] += 1

    def leave(self, host: str) -> None:
        """One less."""
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
