"""The antivirus: clamd's verdict on a file, over its protocol, and the behaviour without clamd. A file without a
verdict is rejected.

The protocol is that of the `clamd` package, extended by timeouts, complete streams and complete replies.
"""

import asyncio
import socket
import time
import zipfile
from collections.abc import Callable, Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import clamd

from everturn.core.errors import Invalid, Unavailable
from everturn.core.work_slots import WorkSlots

CONNECT_TIMEOUT_S = 2.0
_CHUNK_BYTES = 2**16
_MAX_REPLY_BYTES = 4096
_SILENT = "The virus scanner does not respond."

Address = tuple[str, int] | str
"""Host and port, or the path of a socket."""

NOT_SCANNED = "not scanned"
SCAN_TIMEOUT_S = 20.0
CHECK_TIMEOUT_S = 2.5
VERSION_KEPT_S = 60.0
"""A file that is scanned with newer signatures meanwhile keeps the older version in its verdict, and is scanned again
later."""
SCANS, SCANS_OF_PERSON, WAITING = 4, 2, 32
"""Files that clamd scans at once for this process, how many of them for one person, and files that wait. clamd has one
queue for all clients, so its `MaxThreads` must cover the scans of all processes: then no scan waits there."""
CHECKS = 2
"""Readiness checks and requests for the version that clamd answers beside the scans."""

_TOO_DEEP = 120
"""Nested archives: far more than clamd unpacks (MaxRecursion is 17 by default)."""
_LIMITS = "Heuristics.Limits.Exceeded"
_ENCRYPTED = "Heuristics.Encrypted"
_DISHONEST = "clamd reports content as clean that it did not scan. Set AlertExceedsMax yes and MaxRecursion below 100."
_SIZE_REPLY = "size limit exceeded"


def parse_address(url: str) -> Address:
    """`unix:///path` is a path, `tcp://host:port` a pair. Raises Invalid for anything else."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path and not parts.netloc:
            return parts.path
        if parts.scheme == "tcp" and parts.hostname and parts.port:
            return parts.hostname, parts.port
    raise Invalid("CLAMD_URL must be tcp://host:port or unix:///path.")


async def send_command(
    address: Address, command: str, *, timeout_s: float, stream: bytes | None = None, threads: Executor | None = None
) -> str:
    """Send one command, followed by `stream`, and return the reply. Raises Unavailable when there is none in time.

    Occupies one of the `threads` until then; None is the event loop's own pool.
    """
    connection = _ClamdConnection(address, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.get_running_loop().run_in_executor(threads, connection.send_command, command, stream)
    except (clamd.ClamdError, OSError, TimeoutError, UnicodeDecodeError) as error:
        raise Unavailable(_SILENT) from error
    finally:
        # This also ends a thread that still waits for the reply.
        connection.abort()


class _ClamdConnection(clamd.ClamdNetworkSocket):
    """One connection for one command.

    The package connects without a timeout, ignores partial writes of a stream, and accepts a partial reply as a
    complete one. The methods below fix these three.
    """

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._open: socket.socket | None = None
        self._is_aborted = False

    def send_command(self, command: str, stream: bytes | None) -> str:
        """Blocks for at most the timeout in each of its steps."""
        with self._connect() as connection:
            self._open = self.clamd_socket = connection
            # `abort` sets this before it looks for the connection.
            if self._is_aborted:
                raise clamd.ConnectionError(_SILENT)
            connection.settimeout(self._timeout_s)
            # clamd rejects a stream that is too long in the middle, and says so before it disconnects.
            with suppress(BrokenPipeError, ConnectionResetError):
                cast("Any", self)._send_command(command)  # it has no types
                self._send_stream(stream)
            return self._recv_response()

    def abort(self) -> None:
        """Can be called from another thread, and more than once."""
        self._is_aborted = True
        if self._open is not None:
            with suppress(OSError):
                self._open.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> socket.socket:
        """A name may have addresses of both families; each is tried."""
        limit_s = min(CONNECT_TIMEOUT_S, self._timeout_s)
        if not isinstance(self._address, str):
            return socket.create_connection(self._address, limit_s)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(limit_s)
            connection.connect(self._address)
        except BaseException:
            connection.close()
            raise
        return connection

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


class Infected(Exception):
    """The file is infected."""


class Unscannable(Exception):
    """The antivirus can't scan the whole file."""


class Antivirus(Protocol):
    """Produces the verdict of a file. `name` and `why` are for banner and readiness."""

    name: str
    why: str

    async def scan(self, data: bytes, person: str = "") -> str:
        """The verdict of a clean file. Raises Infected, Unscannable, and Unavailable without a verdict.

        People share the antivirus fairly.
        """
        ...

    async def load_verdict(self) -> str:
        """The verdict that a clean file would get now. Raises Unavailable."""
        ...

    async def check(self) -> None:
        """Raise Unavailable when uploads would be rejected."""
        ...


class NoScan:
    """Development mode without clamd: files are accepted, and every verdict says that they were not scanned."""

    name = NOT_SCANNED

    def __init__(self, why: str = "no clamd in development mode; set CLAMD_URL to use one") -> None:
        self.why = why

    async def scan(self, data: bytes, person: str = "") -> str:
        return NOT_SCANNED

    async def load_verdict(self) -> str:
        return NOT_SCANNED

    async def check(self) -> None:
        return None


class RefuseAll:
    """clamd is required but missing: every file is rejected."""

    name = "missing"

    def __init__(self, why: str) -> None:
        self.why = why

    async def scan(self, data: bytes, person: str = "") -> str:
        raise Unavailable(self.why)

    async def load_verdict(self) -> str:
        raise Unavailable(self.why)

    async def check(self) -> None:
        raise Unavailable(self.why)


@dataclass(frozen=True, slots=True)
class _Known:
    verdict: str
    until: float


class Clamd:
    """clamd at `tcp://host:port` or `unix:///path`. Conversations with it have their own threads, because a slow one
    would otherwise delay the hashing and the downloads of the whole process."""

    name = "clamd"

    def __init__(
        self, url: str, *, timeout_s: float = SCAN_TIMEOUT_S, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._address: Address = parse_address(url)
        self.why = f"at {url}; set CLAMD_URL to use another one"
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._slots = WorkSlots(SCANS, WAITING, "Too many files are being scanned.", at_once_of_owner=SCANS_OF_PERSON)
        self._threads = ThreadPoolExecutor(SCANS + CHECKS, thread_name_prefix="clamd")
        self._known = _Known("", 0.0)

    def close(self) -> None:
        """End the threads; conversations that still run end with their callers."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def scan(self, data: bytes, person: str = "") -> str:
        async with self._slots.acquire(person):
            # Load the version before the scan: a verdict must never name newer signatures than those that scanned.
            verdict = await self.load_verdict()
            check_reply(await self._send("INSTREAM", self._timeout_s, data))
        return verdict

    async def load_verdict(self) -> str:
        if self._monotonic() >= self._known.until:
            verdict = build_verdict(await self._send("VERSION", CHECK_TIMEOUT_S))
            if verdict != self._known.verdict:
                await self._check_honest()
            self._known = _Known(verdict, self._monotonic() + VERSION_KEPT_S)
        return self._known.verdict

    async def check(self) -> None:
        if await self._send("PING", CHECK_TIMEOUT_S) != "PONG":
            raise Unavailable("clamd does not respond as expected.")
        await self.load_verdict()

    async def _check_honest(self) -> None:
        """Scan an archive that is nested too deep: without AlertExceedsMax clamd answers OK for content that it did not
        scan."""
        reply = await self._send("INSTREAM", self._timeout_s, build_too_deep())
        try:
            check_reply(reply)
        except Unscannable:
            return
        except Infected as error:
            raise Unavailable("clamd reports a virus in an empty archive.") from error
        raise Unavailable(_DISHONEST)

    async def _send(self, command: str, timeout_s: float, stream: bytes | None = None) -> str:
        return await send_command(self._address, command, timeout_s=timeout_s, stream=stream, threads=self._threads)


def check_reply(reply: str) -> None:
    """Raises unless the reply to a stream says that all of it is clean."""
    result = reply.removeprefix("stream: ")
    if result == "OK" and result != reply:
        return
    if _SIZE_REPLY in result:
        raise Unscannable("it is larger than the virus scanner accepts")
    signature = result.removesuffix(" FOUND")
    if signature == result:
        raise Unavailable("The virus scanner returned no verdict.")
    if signature.startswith(_LIMITS):
        raise Unscannable("the virus scanner can't scan all of it")
    if signature.startswith(_ENCRYPTED):
        raise Unscannable("it is encrypted")
    raise Infected(f"it is infected ({signature})")


def build_verdict(version: str) -> str:
    """Build the verdict from `ClamAV 1.4.2/27500/Mon ...`: engine, signature version and date. Raises Unavailable."""
    engine, _, rest = version.partition("/")
    if not engine.startswith("ClamAV"):
        raise Unavailable("clamd does not report its version.")
    return " ".join(part for part in ("clean", engine.strip(), rest.split("/")[0].strip()) if part)[:80]


def build_too_deep() -> bytes:
    """A small harmless archive, nested deeper than clamd unpacks."""
    inner = b"."
    for _ in range(_TOO_DEEP):
        outer = BytesIO()
        with zipfile.ZipFile(outer, "w") as archive:
            archive.writestr(zipfile.ZipInfo("a.zip"), inner)
        inner = outer.getvalue()
    return inner


@contextmanager
def open_antivirus(*, clamd_url: str | None, development: bool, av_scan: str) -> Generator[Antivirus]:
    """Scan if clamd is set; without it only development mode accepts files, unless APP_AV_SCAN=1 requires scans."""
    if development and av_scan == "0":
        yield NoScan("APP_AV_SCAN=0")
    elif clamd_url:
        with closing(Clamd(clamd_url)) as clamd:
            yield clamd
    elif development and not av_scan:
        yield NoScan()
    else:
        yield RefuseAll("CLAMD_URL is not set, so files can't be scanned and are rejected.")
