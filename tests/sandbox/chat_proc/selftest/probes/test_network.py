"""Attempts on the network: denied in the sandbox, and no wonder but for its walls."""

import socket

from chat_proc.selftest.probes.network import NETWORK


def test_all_are_denied_in_the_sandbox(check_all_held):
    check_all_held(NETWORK)


def test_without_walls_they_get_through(try_without_walls):
    names = (
        "connect to a port of the host",
        "connect to an abstract socket of the host",
        "connect to the container engine",
        "listen on a port",
        "open a netlink socket",
    )
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as engine:
        engine.bind("\0everturn-test-engine")
        engine.listen()
        known = {"port": server.getsockname()[1], "abstract": "everturn-test-engine"}

        found = try_without_walls("network", "NETWORK", *names, engine_sockets=["\0everturn-test-engine"], **known)

    assert [name for name, (held, _) in found.items() if not held] == list(names)
