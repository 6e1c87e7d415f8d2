"""clamd on the wire: the `clamd` package, made to end in time, to send whole streams and to take whole replies only."""

import asyncio
import socket
from contextlib import closing, suppress
from typing import Any, cast
from urllib.parse import urlsplit

import clamd

from everturn.errors import Invalid, Unavailable

CONNECT_TIMEOUT_S = 2.0
_CHUNK_BYTES = 2**16
_MAX_REPLY_BYTES = 4096
_SILENT = "The antivirus does not answer."

Address = tuple[str, int] | str
"""Host and port, or the path of a socket."""


def parse_address(url: str) -> Address:
    """`unix:///path` is a path, `tcp://host:port` a pair. Raises Invalid for anything else."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path and not parts.netloc:
            return parts.path
        if parts.scheme == "tcp" and parts.hostname and parts.port:
            return parts.hostname, parts.port
    raise Invalid("CLAMD_URL must be tcp://host:port or unix:///path.")


async def ask(address: Address, command: str, *, timeout_s: float, stream: bytes | None = None) -> str:
    """The reply to one command, with `stream` sent behind it. Raises Unavailable when there is none in time."""
    line = _Line(address, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.to_thread(line.ask, command, stream)
    except (clamd.ClamdError, OSError, TimeoutError, UnicodeDecodeError) as error:
        raise Unavailable(_SILENT) from error
    finally:
        # A thread that still waits there ends with it.
        line.hang_up()


class _Line(clamd.ClamdNetworkSocket):
    """One connection for one command.

    The package connects without a limit, sends a piece of a stream without looking how much of it went out, and takes
    the beginning of a reply for all of it: the methods below do these three otherwise.
    """

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self.clamd_socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)

    def ask(self, command: str, stream: bytes | None) -> str:
        """Blocks, for each of its steps at most as long as the limit."""
        with closing(self.clamd_socket):
            self._init_socket()
            # clamd refuses a stream that is too long in the middle and says so before it hangs up.
            with suppress(BrokenPipeError, ConnectionResetError):
                cast("Any", self)._send_command(command)  # it has no types
                self._send_stream(stream)
            return self._recv_response()

    def hang_up(self) -> None:
        """May be called from another thread, and more than once."""
        with suppress(OSError):
            self.clamd_socket.shutdown(socket.SHUT_RDWR)

    def _init_socket(self) -> None:
        self.clamd_socket.settimeout(min(CONNECT_TIMEOUT_S, self._timeout_s))
        self.clamd_socket.connect(self._address)
        self.clamd_socket.settimeout(self._timeout_s)

    def _send_stream(self, stream: bytes | None) -> None:
        if stream is None:
            return
        for start in range(0, len(stream), _CHUNK_BYTES):
            piece = stream[start : start + _CHUNK_BYTES]
            self.clamd_socket.sendall(len(piece).to_bytes(4) + piece)
        self.clamd_socket.sendall(bytes(4))

    def _recv_response(self) -> str:
        with self.clamd_socket.makefile("rb") as replies:
            reply = replies.readline(_MAX_REPLY_BYTES)
        if not reply.endswith(b"\n"):
            raise clamd.ConnectionError(_SILENT)
        return reply.decode().strip()
