"""The antivirus: clamd over INSTREAM, and what we say of files when there is none."""

import asyncio
import io
import socket
import struct
from typing import Any, Protocol
from urllib.parse import urlsplit

import clamd

from everturn.errors import Unavailable

NOT_SCANNED = "not scanned"
SCAN_TIMEOUT_S = 20
CONNECT_TIMEOUT_S = 2


class Infected(Exception):
    """The file is infected."""


class Antivirus(Protocol):
    """Says what a file is to be kept as. `name` and `why` are for banner and readiness."""

    name: str
    why: str

    async def scan(self, data: bytes) -> str:
        """The verdict of a clean file. Raises Infected, and Unavailable when nobody can say."""
        ...

    async def check(self) -> None:
        """Raise Unavailable when uploads would be refused."""
        ...


class NoScan:
    """Development mode without clamd: files are taken, and every verdict says that nobody looked."""

    name = NOT_SCANNED
    why = "development mode without CLAMD_URL"

    async def scan(self, data: bytes) -> str:
        return NOT_SCANNED

    async def check(self) -> None:
        return None


class RefuseAll:
    """No clamd where there must be one: no file is taken."""

    name = "missing"

    def __init__(self, why: str) -> None:
        self.why = why

    async def scan(self, data: bytes) -> str:
        raise Unavailable(self.why)

    async def check(self) -> None:
        raise Unavailable(self.why)


class Clamd:
    """clamd at `tcp://host:port` or `unix:///path`; every call is a connection of its own, in a thread."""

    name = "clamd"

    def __init__(self, url: str) -> None:
        self.why = "CLAMD_URL is set"
        self._address = parse_address(url)

    async def scan(self, data: bytes) -> str:
        try:
            result, version = await asyncio.to_thread(self._scan, data)
        except (clamd.ClamdError, OSError, UnicodeDecodeError, ValueError) as error:
            raise Unavailable("The antivirus could not scan the file.") from error
        status, signature = result.get("stream", ("", None))
        if status == "FOUND":
            raise Infected(str(signature))
        if status != "OK":
            raise Unavailable("The antivirus gave no verdict.")
        return f"clean {version}"

    async def check(self) -> None:
        try:
            answer = await asyncio.to_thread(self._connect().ping)
        except (clamd.ClamdError, OSError, UnicodeDecodeError) as error:
            raise Unavailable("clamd does not answer.") from error
        if answer != "PONG":
            raise Unavailable("clamd does not answer as it should.")

    def _scan(self, data: bytes) -> tuple[dict[str, tuple[str, str | None]], str]:
        connection = self._connect()
        result = connection.instream(io.BytesIO(data))  # pyright: ignore[reportUnknownMemberType] it has no types
        return result or {}, _version_of(connection.version())

    def _connect(self) -> "_BoundedClamd":
        return _BoundedClamd(self._address)


class _BoundedClamd(clamd.ClamdNetworkSocket):
    """The library's client with bounded waits.

    The library connects without a limit, and with Python's own timeouts its `send` may send half a chunk; the kernel's
    timeouts on a blocking socket do neither.
    """

    def __init__(self, address: tuple[str, int] | str) -> None:
        self._address = address
        self.host, self.port = ("unix", 0) if isinstance(address, str) else address
        self.timeout = SCAN_TIMEOUT_S

    def _init_socket(self) -> None:
        family = socket.AF_UNIX if isinstance(self._address, str) else socket.AF_INET
        self.clamd_socket: Any = socket.socket(family, socket.SOCK_STREAM)  # set first: the library closes it always
        connected = self.clamd_socket
        connected.settimeout(CONNECT_TIMEOUT_S)
        connected.connect(self._address)
        connected.settimeout(None)
        limit = struct.pack("ll", SCAN_TIMEOUT_S, 0)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def parse_address(url: str) -> tuple[str, int] | str:
    """`unix:///path` is a path, `tcp://host:port` a pair. Raises ValueError for anything else."""
    parts = urlsplit(url)
    if parts.scheme == "unix" and parts.path and not parts.netloc:
        return parts.path
    if parts.scheme == "tcp" and parts.hostname and parts.port:
        return parts.hostname, parts.port
    raise ValueError("CLAMD_URL must be tcp://host:port or unix:///path.")


def choose_antivirus(*, clamd_url: str | None, development: bool, av_scan: str) -> Antivirus:
    """Scan when there is a clamd; without one only development mode takes files, unless APP_AV_SCAN=1 asks to scan."""
    if development and av_scan == "0":
        return NoScan()
    if clamd_url:
        return Clamd(clamd_url)
    if development and not av_scan:
        return NoScan()
    return RefuseAll("CLAMD_URL is not set, so files can't be scanned and are refused.")


def _version_of(answer: str) -> str:
    # `ClamAV 1.0.7/27104/Fri ...` is engine, signature version and date.
    engine, _, rest = answer.partition("/")
    return " ".join(part for part in (engine.strip(), rest.split("/")[0].strip()) if part)[:80]
