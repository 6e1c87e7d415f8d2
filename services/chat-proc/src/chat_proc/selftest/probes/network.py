"""Attempts to reach anything over a network or a socket that does not belong to this run."""

import socket
from functools import partial
from typing import Final

from chat_proc.selftest.probes.attempts import Group, Surroundings, call, try_each

NETWORK: Final = Group("network")
GROUPS: Final = (NETWORK,)
_WAIT_S: Final = 1.0
_STREAM, _DATAGRAM, _RAW, _SEQPACKET = 1, 2, 3, 5
_INET, _INET6, _NETLINK, _PACKET, _ALG, _VSOCK, _XDP = 2, 10, 16, 17, 38, 40, 44
_RARE_FAMILIES: Final = (31, 30, 29, 21, 15)
"""Bluetooth, TIPC, CAN, RDS, key management."""


@NETWORK.attempt
def connect_over_ipv4(around: Surroundings) -> None:
    socket.create_connection(("1.1.1.1", 80), timeout=_WAIT_S)


@NETWORK.attempt
def connect_over_ipv6(around: Surroundings) -> None:
    socket.create_connection(("2606:4700:4700::1111", 80), timeout=_WAIT_S)


@NETWORK.attempt
def connect_to_a_port_of_the_host(around: Surroundings) -> None:
    socket.create_connection(("127.0.0.1", around.port), timeout=_WAIT_S)


@NETWORK.attempt
def connect_to_the_metadata_address(around: Surroundings) -> None:
    socket.create_connection(("169.254.169.254", 80), timeout=_WAIT_S)


@NETWORK.attempt
def send_a_datagram(around: Surroundings) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("1.1.1.1", 53))


@NETWORK.attempt
def resolve_a_name(around: Surroundings) -> None:
    socket.getaddrinfo("example.org", 80)


@NETWORK.attempt
def listen_on_a_port(around: Surroundings) -> None:
    # Even though nothing could connect, the address family is forbidden to programs.
    socket.create_server(("127.0.0.1", 0)).close()


@NETWORK.attempt
def open_a_raw_socket(around: Surroundings) -> int:
    return call("socket", _INET, _RAW, socket.IPPROTO_ICMP)


@NETWORK.attempt
def open_a_raw_ipv6_socket(around: Surroundings) -> int:
    return call("socket", _INET6, _RAW, socket.IPPROTO_ICMPV6)


@NETWORK.attempt
def open_a_packet_socket(around: Surroundings) -> int:
    return call("socket", _PACKET, _RAW, 0)


@NETWORK.attempt
def open_a_netlink_socket(around: Surroundings) -> int:
    return call("socket", _NETLINK, _RAW, 0)


@NETWORK.attempt
def open_a_vsock_socket(around: Surroundings) -> int:
    return call("socket", _VSOCK, _STREAM, 0)


@NETWORK.attempt
def open_a_socket_to_the_kernel_crypto_api(around: Surroundings) -> int:
    return call("socket", _ALG, _SEQPACKET, 0)


@NETWORK.attempt
def open_an_xdp_socket(around: Surroundings) -> int:
    return call("socket", _XDP, _RAW, 0)


@NETWORK.attempt
def open_a_socket_of_a_rarely_used_family(around: Surroundings) -> object:
    """Kernel modules that are loaded on first use, with a history of holes."""
    return try_each(partial(call, "socket", family, _DATAGRAM, 0) for family in _RARE_FAMILIES)


@NETWORK.attempt
def connect_to_an_abstract_socket_of_the_host(around: Surroundings) -> None:
    _connect("\0" + around.abstract)


@NETWORK.attempt
def connect_to_an_abstract_socket_of_another_run(around: Surroundings) -> None:
    _connect("\0" + around.neighbour)


@NETWORK.attempt
def connect_to_the_container_engine(around: Surroundings) -> object:
    return try_each(partial(_connect, place) for place in around.engine_sockets)


@NETWORK.attempt
def listen_on_the_socket_of_the_executor(around: Surroundings) -> None:
    """A pair's two containers meet at a socket once; a process that takes it over could impersonate the executor."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("/run/everturn/line.sock")


@NETWORK.attempt
def connect_to_the_socket_of_the_executor_again(around: Surroundings) -> None:
    _connect("/run/everturn/line.sock")


def _connect(place: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(place)
