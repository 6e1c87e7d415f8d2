"""The worker's line to the broker: where it is, who may speak to it, one request and its answer at a time."""

import asyncio
import contextlib
import re
import ssl
import struct
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from chat_proc.sandbox.supervised import SupervisorFailed
from everturn.errors import Invalid
from everturn.wire.brokering import BROKER_FRAME_BYTES, BrokerRefusal, RefusalCode
from everturn.wire.execution import PIPE_FRAME_BYTES
from everturn.wire.framing import FrameDecoder, FrameError, FrameStream, decode_message, encode_frame
from everturn.wire.records import BadMessage, MessageClass, build_message, parse_message

CONNECT_TIMEOUT_S: Final = 5.0
_LENGTH: Final = struct.Struct(">I")
_UNIX: Final = re.compile(r"unix://(?P<path>/.+)")
_TLS: Final = re.compile(r"tls://(?P<host>[^/:\s]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")

AnswerT = TypeVar("AnswerT", bound=MessageClass)


class BadBrokerAddress(Invalid):
    """BROKER_URL, or a file that goes with it, can't be used."""


class BrokerSilent(SupervisorFailed):
    """The broker can't be reached, or its line broke."""


class BrokerRefused(SupervisorFailed):
    """The broker did not do what it was asked."""

    def __init__(self, refusal: BrokerRefusal) -> None:
        super().__init__(f"the broker refused ({refusal.code}): {refusal.message}")
        self.code: RefusalCode = refusal.code


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A Unix socket (`path`), or a host with mutual TLS. `url` is what the operator wrote."""

    url: str
    path: str = ""
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Files that a TCP line needs: the authority that vouches for the broker, our certificate and its key."""

    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def parse_address(url: str, certificate: ClientCertificate) -> BrokerAddress:
    """`unix:///path` or `tls://host:port`; the latter reads the three files. Raises BadBrokerAddress."""
    if found := _UNIX.fullmatch(url):
        return BrokerAddress(url, path=found["path"])
    if not (found := _TLS.fullmatch(url)):
        raise BadBrokerAddress(f"BROKER_URL is {url[:100]!r}, and must be unix:///path or tls://host:port.")
    if certificate.authority is None or certificate.certificate is None or certificate.key is None:
        raise BadBrokerAddress("A broker behind TLS needs BROKER_CA, BROKER_CLIENT_CERT and BROKER_CLIENT_KEY.")
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(certificate.authority))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(str(certificate.certificate), str(certificate.key))
    except (OSError, ssl.SSLError) as error:
        raise BadBrokerAddress(f"The broker's TLS files can't be used: {error}.") from error
    return BrokerAddress(url, host=found["host"].strip("[]"), port=int(found["port"]), tls=context)


class BrokerLine:
    """One connection. Only one task may use it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: MessageClass, expected: type[AnswerT], *, timeout_s: float) -> AnswerT:
        """The answer. Raises BrokerRefused, BrokerSilent."""
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(encode_frame(build_message(request), BROKER_FRAME_BYTES))
                await self._writer.drain()
                answer = parse_message(decode_message(await self._read_body()), expected, BrokerRefusal)
        except TimeoutError as error:
            raise BrokerSilent(f"the broker did not answer to {request.kind} within {timeout_s:g} s") from error
        except (OSError, EOFError, FrameError, BadMessage) as error:
            raise BrokerSilent(f"the broker's line broke: {type(error).__name__}: {error}") from error
        if isinstance(answer, BrokerRefusal):
            raise BrokerRefused(answer)
        return answer

    def become_stream(self) -> FrameStream:
        """The supervisor's line, once the broker has attached it. Nothing is lost: `ask` reads no byte too many."""
        return FrameStream(self._reader, self._writer, FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True))

    def is_quiet(self) -> bool:
        """Whether the other end is still there."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def _read_body(self) -> bytes:
        """Reads exactly one frame: what comes after it may be the supervisor's. Raises EOFError, FrameError."""
        size: int = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))[0]
        if size > BROKER_FRAME_BYTES:
            raise FrameError("too_large", f"{size} bytes, the limit is {BROKER_FRAME_BYTES}")
        return await self._reader.readexactly(size)


@contextlib.asynccontextmanager
async def open_broker_line(address: BrokerAddress) -> AsyncGenerator[BrokerLine]:
    """Connect; the line is cut when the block is left, however full it is. Raises BrokerSilent."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await _connect(address)
    except TimeoutError as error:
        raise BrokerSilent(f"the broker at {address.url} does not answer") from error
    except OSError as error:
        raise BrokerSilent(f"the broker at {address.url} can't be reached: {error.strerror or error}") from error
    try:
        yield BrokerLine(reader, writer)
    finally:
        # Not closed in good order: what a run did not read any more must not keep its pair alive.
        writer.transport.abort()


async def _connect(address: BrokerAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.path:
        return await asyncio.open_unix_connection(address.path)
    return await asyncio.open_connection(address.host, address.port, ssl=address.tls)
