"""Where a request came from: the peer of its connection, never a header that anybody can write."""

from ipaddress import IPv6Address, IPv6Network, ip_address

from starlette.requests import HTTPConnection

UNKNOWN = "unknown"
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
