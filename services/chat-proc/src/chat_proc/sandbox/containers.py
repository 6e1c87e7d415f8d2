"""The launcher for machines with a container engine: a pair of containers per run, requested from the broker.

The worker has no engine address. The connection to the broker is the pair's lifeline: when it closes, the pair ends.
"""

import asyncio
import contextlib
import functools
import re
import signal
import ssl
import struct
import time
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import structlog

from chat_proc.sandbox.launching import TRIAL, SupervisedSandbox, UnknownProfile
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.sandbox.supervised import BootedSupervisor, SupervisorFailed
from everturn.core.errors import Invalid
from everturn.core.transports import CheckedWriter, abort
from everturn.execution.broker_messages import (
    BROKER_FRAME_BYTES,
    KEEPALIVE,
    TLS_AUTHORITY,
    TLS_CERTIFICATE,
    TLS_DIR,
    TLS_KEY,
    Attach,
    Attached,
    BrokerRefusal,
    PairEnded,
    PairStarted,
    RefusalCode,
    RemovePair,
    StartPair,
)
from everturn.execution.framing import FrameDecoder, FrameError, FrameStream, decode_message, encode_frame
from everturn.execution.messages import PIPE_FRAME_BYTES, Finished, LimitName, Posture, RunLimits
from everturn.execution.profiles import DEFAULT_PROFILE
from everturn.execution.records import BadMessage, MessageClass, build_message, parse_message

_log = structlog.get_logger(__name__)

CONNECT_TIMEOUT_S: Final = 5.0
_LENGTH: Final = struct.Struct(">I")
_UNIX: Final = re.compile(r"unix://(?P<path>/.+)")
_TLS: Final = re.compile(r"tls://(?P<host>[^/:\s]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")

AnswerT = TypeVar("AnswerT", bound=MessageClass)

START_TIMEOUT_S: Final = 150.0
"""A cold pair takes about 2 s; on a busy machine the engine and the supervisor's 30 s for its executor add to that. The
broker gives up earlier: after 10 s for room, and a boot of at most 120 s, the limit of Pods."""

ATTACH_TIMEOUT_S: Final = 10.0
REMOVE_TIMEOUT_S: Final = 10.0
BUSY_WAIT_S: Final = 120.0
"""How long a run waits for a broker that has no room for another pair."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_NOT_SEEN: Final = "not seen yet: the broker did not answer when the worker started"


class BadBrokerAddress(Invalid):
    """BROKER_URL, or a file that goes with it, can't be used."""


_PERMANENT: Final[Collection[RefusalCode]] = ("bad_message", "unknown_profile", "image_missing")
"""Refusals that last until the operator changes something."""


class BrokerUnreachable(SupervisorFailed):
    """The broker can't be reached, or the connection broke."""


class BrokerRefused(SupervisorFailed):
    """The broker refused a request."""

    def __init__(self, refusal: BrokerRefusal) -> None:
        super().__init__(f"the broker refused ({refusal.code}): {refusal.message}")
        self.code: RefusalCode = refusal.code
        self.is_permanent = refusal.code in _PERMANENT


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A Unix socket (`path`), or a host with mutual TLS. `url` is the operator's setting."""

    url: str
    path: str = ""
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None


def parse_address(url: str, tls_dir: Path | None = None) -> BrokerAddress:
    """`unix:///path` or `tls://host:port`; the latter reads the three files in `tls_dir`. Raises BadBrokerAddress."""
    if found := _UNIX.fullmatch(url):
        return BrokerAddress(url, path=found["path"])
    if not (found := _TLS.fullmatch(url)):
        raise BadBrokerAddress(f"BROKER_URL is {url[:100]!r}; it must be unix:///path or tls://host:port.")
    if tls_dir is None:
        raise BadBrokerAddress(f"A broker behind TLS needs {TLS_DIR}.")
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(tls_dir / TLS_AUTHORITY))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(tls_dir / TLS_CERTIFICATE, tls_dir / TLS_KEY)
    except (OSError, ssl.SSLError) as error:
        raise BadBrokerAddress(f"The files in {TLS_DIR} can't be used: {error}.") from error
    return BrokerAddress(url, host=found["host"].strip("[]"), port=int(found["port"]), tls=context)


class BrokerConnection:
    """One connection, for use by one task only."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._checked = CheckedWriter(writer)

    async def request(self, request: MessageClass, expected: type[AnswerT], *, timeout_s: float) -> AnswerT:
        """Send a request and return the reply. Raises BrokerRefused, BrokerUnreachable."""
        try:
            async with asyncio.timeout(timeout_s):
                self._checked.write(encode_frame(build_message(request), BROKER_FRAME_BYTES))
                await self._checked.drain()
                answer = parse_message(decode_message(await self._read_body()), expected, BrokerRefusal)
        except TimeoutError as error:
            raise BrokerUnreachable(f"the broker did not answer {request.kind} within {timeout_s:g} s") from error
        except (OSError, EOFError, FrameError, BadMessage) as error:
            raise BrokerUnreachable(f"the connection to the broker broke: {type(error).__name__}: {error}") from error
        if isinstance(answer, BrokerRefusal):
            raise BrokerRefused(answer)
        return answer

    def into_stream(self) -> FrameStream:
        """The supervisor's stream, once the broker has attached it. Nothing is lost: `request` reads no extra bytes."""
        return FrameStream(self._reader, self._checked, FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True))

    def is_quiet(self) -> bool:
        """Whether the peer is still connected."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def _read_body(self) -> bytes:
        """Read exactly one frame: later bytes may be the supervisor's. Raises EOFError, FrameError."""
        size: int = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))[0]
        if size > BROKER_FRAME_BYTES:
            raise FrameError("too_large", f"{size} bytes, the limit is {BROKER_FRAME_BYTES}")
        return await self._reader.readexactly(size)


@contextlib.asynccontextmanager
async def open_broker_connection(address: BrokerAddress) -> AsyncGenerator[BrokerConnection]:
    """Connect; the connection is cut when the block exits, even with unsent data. Raises BrokerUnreachable."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await _connect(address)
    except TimeoutError as error:
        raise BrokerUnreachable(f"the broker at {address.url} does not answer") from error
    except OSError as error:
        raise BrokerUnreachable(f"the broker at {address.url} can't be reached: {error.strerror or error}") from error
    try:
        yield BrokerConnection(reader, writer)
    finally:
        # Aborted rather than closed: data that a run no longer reads must not keep its pair alive.
        abort(writer)


async def _connect(address: BrokerAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.path:
        return await asyncio.open_unix_connection(address.path)
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=address.tls)
    connection = writer.get_extra_info("socket")
    for level, option, value in KEEPALIVE:
        connection.setsockopt(level, option, value)
    return reader, writer


async def open_container_sandbox(address: BrokerAddress, *, busy_wait_s: float = BUSY_WAIT_S) -> SupervisedSandbox:
    """Open a launcher, verified with a trial pair of the default profile. Raises BrokerUnreachable, SandboxUnavailable.

    The trial waits for `busy_wait_s` while the broker has no room. A broker counts as unreachable if it may be able to
    start pairs later, as `is_temporary` says.
    """
    try:
        async with ContainersLauncher(address, busy_wait_s=busy_wait_s).take(DEFAULT_PROFILE, TRIAL) as supervisor:
            launcher = ContainersLauncher(address)
            return SupervisedSandbox(launcher, supervisor.posture, supervisor.limits, supervisor.image)
    except SupervisorFailed as failure:
        if is_temporary(failure):
            raise BrokerUnreachable(str(failure)) from failure
        code = failure.code if isinstance(failure, BrokerRefused) else "start_failed"
        raise explain_refusal(code, str(failure), is_local=bool(address.path)) from failure


def is_temporary(failure: Exception) -> bool:
    """Whether a pair that was not started may be started later, although nobody changes a setting."""
    return isinstance(failure, BrokerUnreachable) or (
        isinstance(failure, BrokerRefused) and failure.code in ("busy", "engine_down", "start_timeout")
    )


def build_unseen_sandbox(address: BrokerAddress) -> SupervisedSandbox:
    """A sandbox over a broker that has not answered yet: runs fail with the reason until it does."""
    posture = Posture("containers", _NOT_SEEN, 0, _NOT_SEEN, *(["not seen yet"] * 5))
    return SupervisedSandbox(ContainersLauncher(address), posture, RunLimits())


def explain_refusal(code: RefusalCode, detail: str, *, is_local: bool) -> SandboxUnavailable:
    """Explain why a trial pair was not started. `make images` gives images to the engine of this machine only."""
    if code == "image_missing":
        remedy = "make images" if is_local else ""
        return SandboxUnavailable(f"The images of container runs are missing ({_shorten(detail)}).", remedy)
    return SandboxUnavailable(f"A trial pair of containers did not start: {_shorten(detail)}.")


class ContainersLauncher:
    """Requests a pair from the broker for each run. It keeps no state between runs, so the broker can restart."""

    keeps_warm = True

    def __init__(self, address: BrokerAddress, *, busy_wait_s: float = BUSY_WAIT_S) -> None:
        self._address = address
        self._busy_wait_s = busy_wait_s

    @contextlib.asynccontextmanager
    async def take(self, profile: str, run_name: str) -> AsyncGenerator[BootedSupervisor]:
        async with open_broker_connection(self._address) as line:
            pair = await self._start(line, StartPair(profile, run_name))
            await line.request(Attach(pair.pair_id), Attached, timeout_s=ATTACH_TIMEOUT_S)
            yield BootedSupervisor(
                line.into_stream(),
                pair.posture,
                pair.limits,
                read_errors=_no_error_output,
                load_hits=functools.partial(self._load_hits, pair.pair_id),
                is_waiting=line.is_quiet,
                image=pair.executor_image,
                supervisor_image=pair.supervisor_image,
            )

    async def _start(self, line: BrokerConnection, request: StartPair) -> PairStarted:
        """Start a booted pair; waits while the broker is busy. Raises SupervisorFailed."""
        deadline, pause_s = time.monotonic() + self._busy_wait_s, _FIRST_PAUSE_S
        while True:
            try:
                return await line.request(request, PairStarted, timeout_s=START_TIMEOUT_S)
            except BrokerRefused as refused:
                if refused.code == "unknown_profile":
                    raise UnknownProfile(str(refused)) from refused
                if refused.code != "busy" or time.monotonic() + pause_s > deadline:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _load_hits(self, pair_id: str, finished: Finished) -> tuple[LimitName, ...]:
        """The limits that the engine saw enforced; queried only if the kernel may have killed the run: it costs a round
        trip."""
        if not suggests_kill(finished):
            return ()
        try:
            async with open_broker_connection(self._address) as line:
                ended = await line.request(RemovePair(pair_id), PairEnded, timeout_s=REMOVE_TIMEOUT_S)
        except SupervisorFailed as failure:
            _log.warning("Could not read which limits the run reached", error=str(failure))
            return ()
        return ended.hits


def suggests_kill(finished: Finished) -> bool:
    """Whether the kernel may have killed the run for its memory without a report from inside."""
    report = finished.report
    if finished.verdict == "died" or report is None:
        return True
    return report.signal == signal.SIGKILL and "memory" not in report.limits


async def _no_error_output() -> str:
    """No error output: the broker logs the stderr of containers."""
    return ""


def _shorten(detail: str) -> str:
    return " ".join(detail.split())[:300].rstrip(". ")
