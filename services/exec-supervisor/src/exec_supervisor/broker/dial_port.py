"""The port to which supervisors in Pods connect: TLS with a certificate of this process, and a one-time token per pair.

A supervisor gets both when its Pod is created. So it knows that it talks to the broker that created it, and nobody can
be taken for it without having read its Pod before it connects.
"""

import asyncio
import contextlib
import hmac
import os
import secrets
import ssl
import struct
from base64 import b64encode
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from everturn.core.errors import Invalid
from everturn.core.transports import abort
from everturn.execution.framing import FrameError, decode_message
from everturn.execution.messages import DIAL_HOST, Dial
from everturn.execution.records import BadMessage, parse_message
from exec_supervisor.broker.listeners import open_connections, open_tcp

_log = structlog.stdlib.get_logger()

HELLO_TIMEOUT_S: Final = 10.0
HELLO_BYTES: Final = 1024
TOKEN_BYTES: Final = 32
MORE_CONNECTIONS: Final = 64
"""In addition to one per pair, for those that have not said who they are."""

_READ_BYTES: Final = 64 << 10
_LENGTH: Final = struct.Struct(">I")
_SHUTDOWN_S: Final = 5.0
_CLOCKS_DIFFER: Final = timedelta(days=1)
_VALIDITY: Final = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A self-signed certificate and its key, both as PEM; `der` is the certificate in base64."""

    pem: bytes
    key: bytes
    der: str


def build_certificate(host: str) -> Certificate:
    """A new one for `host`, which its peers trust by itself. The key never leaves this process."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Certificate(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode("ascii"),
    )


def build_server_context(certificate: Certificate) -> ssl.SSLContext:
    """TLS 1.3 with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The library reads keys from files only; this one exists in memory.
    with open(os.memfd_create("certificate"), "w+b") as file:
        file.write(certificate.pem + certificate.key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context


class DialedLine:
    """The connection of one supervisor, as a `SupervisorLine`. `errors` is its stderr, once that is known.

    TLS can't be closed in one direction: what the supervisor sends after `close_input` may be lost.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.closed = asyncio.Event()
        self.errors = ""

    async def read(self) -> bytes:
        try:
            return await self._reader.read(_READ_BYTES)
        except OSError:
            self.close()
            return b""

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def close_input(self) -> None:
        self._writer.close()

    def close(self) -> None:
        abort(self._writer)
        self.closed.set()


@dataclass(slots=True)
class Ticket:
    """What admits the supervisor of one pair, once: `line` is done when it has connected."""

    token: str
    line: "asyncio.Future[DialedLine]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class DialPort:
    """Admits the expected supervisors. `address` and `certificate` are for them."""

    def __init__(self, address: str, certificate: Certificate) -> None:
        self.address = address
        self.certificate = certificate.der
        self._expected: dict[str, Ticket] = {}

    def expect(self, pair: str) -> Ticket:
        """Admit the supervisor of this pair until it has connected or `forget` is called."""
        ticket = self._expected[pair] = Ticket(secrets.token_hex(TOKEN_BYTES))
        return ticket

    def forget(self, pair: str) -> None:
        """Make the pair's token invalid. Can be repeated."""
        self._expected.pop(pair, None)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until the line that it becomes is closed."""
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                dial = await _receive_dial(reader)
        except (TimeoutError, OSError, EOFError, FrameError, BadMessage) as error:
            _log.info("Closed a connection that is not a supervisor's", detail=str(error) or type(error).__name__)
            return
        ticket = self._expected.get(dial.pair)
        token = dial.token.encode("utf-8", "surrogatepass")
        if ticket is None or not hmac.compare_digest(token, ticket.token.encode("ascii")):
            _log.warning("Rejected a supervisor whose token is not valid", pair=dial.pair[:40])
            return
        del self._expected[dial.pair]
        line = DialedLine(reader, writer)
        if ticket.line.done():
            return
        ticket.line.set_result(line)
        await line.closed.wait()


@contextlib.asynccontextmanager
async def open_dial_port(address: str, max_pairs: int) -> AsyncGenerator[DialPort]:
    """Listen at `host:port`, at any port if it is 0, until the block is left. Raises Invalid."""
    certificate = build_certificate(DIAL_HOST)
    port = DialPort(address, certificate)
    async with open_connections(port.serve, max_pairs + MORE_CONNECTIONS) as accept:
        context = build_server_context(certificate)
        try:
            server = await open_tcp(address, context, accept, shutdown_timeout_s=_SHUTDOWN_S)
        except OSError as error:
            raise Invalid(f"The broker can't listen at BROKER_DIAL={address}: {error.strerror or error}.") from error
        try:
            number = server.sockets[0].getsockname()[1]
            port.address = f"{address.rpartition(':')[0]}:{number}"
            yield port
        finally:
            server.close()


async def _receive_dial(reader: asyncio.StreamReader) -> Dial:
    """Read exactly one frame: later bytes belong to the line. Raises EOFError, FrameError, BadMessage, OSError."""
    size: int = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0]
    if size > HELLO_BYTES:
        raise FrameError("too_large", f"{size} bytes, the limit is {HELLO_BYTES}")
    return parse_message(decode_message(await reader.readexactly(size)), Dial)
