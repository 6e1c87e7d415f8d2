"""Loopback ports: free ones, and the ones that servers had last time."""

import errno
import secrets
import socket
from pathlib import Path

from everturn.core.errors import EverturnError

LOOPBACK = "127.0.0.1"

FIRST_PORT, PORT_COUNT, MAX_TRIES = 20_000, 12_000, 200
"""Below the ports that Linux uses for outgoing connections (32768 up). Otherwise a client that keeps calling a stopped
server could get that very port, connect to itself, and block the server's restart."""


class NoFreePort(EverturnError):
    """No loopback port was free."""


_claims: dict[int, socket.socket] = {}
"""Ports claimed by this process, each with an abstract Unix socket: the kernel gives such a name to one process and
releases it when that ends. Without it two programs that start at once, or a restarting server and a program that looks
for a port, would sometimes choose the same one."""


def load_free_port() -> int:
    """A port that is free now and that no other call, in any process of ours, gets while this one runs.

    A foreign program can still bind it first; callers retry.
    """
    candidates = (FIRST_PORT + secrets.randbelow(PORT_COUNT) for _ in range(MAX_TRIES))
    free = (port for port in candidates if port not in _claims and is_port_free(port))
    port = next((port for port in free if _try_claim(port)), None)
    if port is None:
        raise NoFreePort
    return port


def _try_claim(port: int) -> bool:
    """False if another process has claimed it; True if this one has or now claims it."""
    if port in _claims:
        return True
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0everturn-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims[port] = claim
    return True


class CannotListen(EverturnError):
    """No program can listen on this address."""


def is_port_free(port: int, host: str = LOOPBACK) -> bool:
    """Raises CannotListen when that has another reason than a program that uses the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise CannotListen(f"{host}:{port}: {error.strerror}. Set HOST and PORT.") from error
    return True


def save_port(file: Path) -> int:
    """The port remembered in `file` if it is free and unclaimed, otherwise a new one, which is remembered."""
    remembered = try_load_port(file)
    if remembered is not None and is_port_free(remembered) and _try_claim(remembered):
        return remembered
    port = load_free_port()
    file.write_text(f"{port}\n")
    return port


def try_load_port(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (FileNotFoundError, ValueError):
        return None
