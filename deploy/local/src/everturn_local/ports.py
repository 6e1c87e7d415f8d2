"""Loopback ports: a free one, and the one a server had last time."""

import secrets
import socket
from pathlib import Path

from everturn.errors import EverturnError

LOOPBACK = "127.0.0.1"

FIRST_PORT, PORT_COUNT, MAX_TRIES = 20_000, 12_000, 200
"""Below the ports that Linux gives to outgoing connections (32768 up): a client that keeps calling a stopped server
could otherwise be given that very port, reach itself, and keep the server from coming back."""


class NoFreePort(EverturnError):
    """No loopback port was free."""


def load_free_port() -> int:
    """A port that is free now. Another program may take it before its user binds it; callers try again."""
    candidates = (FIRST_PORT + secrets.randbelow(PORT_COUNT) for _ in range(MAX_TRIES))
    port = next((port for port in candidates if is_port_free(port)), None)
    if port is None:
        raise NoFreePort
    return port


def is_port_free(port: int, host: str = LOOPBACK) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def save_port(file: Path) -> int:
    """The port remembered in `file` while it is free, otherwise a new one, remembered."""
    remembered = try_load_port(file)
    if remembered is not None and is_port_free(remembered):
        return remembered
    port = load_free_port()
    file.write_text(f"{port}\n")
    return port


def try_load_port(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (FileNotFoundError, ValueError):
        return None
