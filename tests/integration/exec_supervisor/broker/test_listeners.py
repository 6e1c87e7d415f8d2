"""Who gets through to the broker: by the rights of its socket, and over TCP by certificates on both sides."""

import asyncio
import contextlib
import datetime
import ipaddress
import os
import socket
import ssl
import stat
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from scripted_broker import POSTURE, REPORT, ScriptedBroker, follow

from chat_proc.sandbox.containers import (
    BrokerUnreachable,
    build_unseen_sandbox,
    open_broker_connection,
    parse_address,
)
from chat_proc.sandbox.port import RunRequest
from everturn.core.errors import Invalid
from everturn.core.settings import split_address
from everturn.execution.broker_messages import KEEPALIVE
from everturn.execution.messages import Finished, GatewayCall, ToolReply
from exec_supervisor.broker.listeners import (
    Addresses,
    Serve,
    build_tls_context,
    find_group,
    open_listeners,
)
from exec_supervisor.broker.settings import BrokerSettings


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key in PEM files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates for a test."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._build(self._name, self._key, is_authority=True)
        self.file = self._save(f"{name}.ca.pem", self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, days: int = 1) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._build(subject, key, is_authority=False, days=days)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Issued(
            self._save(f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM)),
            self._save(f"{name}.key", private),
        )

    def _build(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool, days: int = 1
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=5))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        )
        return builder.sign(self._key, hashes.SHA256())

    def _save(self, name: str, data: bytes) -> Path:
        file = self._folder / name
        file.write_bytes(data)
        return file


@dataclass(frozen=True, slots=True)
class Certificates:
    server_ca: Authority
    client_ca: Authority
    server: Issued
    client: Issued


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    server_ca, client_ca = Authority(folder, "servers"), Authority(folder, "clients")
    return Certificates(server_ca, client_ca, server_ca.issue("broker"), client_ca.issue("worker"))


def save_tls_dir(folder: Path, authority: Authority, issued: Issued) -> Path:
    """What BROKER_TLS_DIR names."""
    folder.mkdir()
    for name, file in (("ca.crt", authority.file), ("tls.crt", issued.cert), ("tls.key", issued.key)):
        (folder / name).symlink_to(file)
    return folder


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
        await writer.drain()


@contextlib.asynccontextmanager
async def listening(
    folder: Path, certificates: Certificates | None, serve: Serve = echo, **more: object
) -> AsyncGenerator[Addresses]:
    tls: dict[str, object] = {}
    if certificates is not None:
        tls_dir = save_tls_dir(folder / "tls", certificates.client_ca, certificates.server)
        tls = {"tcp": "127.0.0.1:0", "tls_dir": tls_dir}
    settings = BrokerSettings(socket=folder / "broker.sock", **tls, **more)  # type: ignore[arg-type]
    async with open_listeners(settings, serve, max_connections=2) as addresses:
        yield addresses


def client_context(trusted: Authority, issued: Issued | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=trusted.file)
    if issued is not None:
        context.load_cert_chain(issued.cert, issued.key)
    return context


async def say_over_tls(addresses: Addresses, context: ssl.SSLContext | None) -> bytes:
    """The echo of a message; empty if the client is rejected, which TLS 1.3 reports as an error or as an end."""
    host, port = split_address(addresses.tcp)
    async with asyncio.timeout(20):
        try:
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            writer.write(b"hello")
            heard = await reader.read(100)
        except OSError:
            return b""
        writer.transport.abort()
        return heard


async def test_the_socket_is_for_its_owner_and_its_group_only(tmp_path: Path):
    async with listening(tmp_path, None) as addresses:
        status = os.stat(addresses.socket)
        reader, writer = await asyncio.open_unix_connection(addresses.socket)
        writer.write(b"hello")
        heard = await reader.read(100)
        writer.close()

    assert stat.S_IMODE(status.st_mode) == 0o660
    assert heard == b"hello"
    assert not (tmp_path / "broker.sock").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to any group")
async def test_the_group_of_the_socket_is_the_one_that_is_set(tmp_path: Path):
    async with listening(tmp_path, None, socket_group="12345") as addresses:
        assert os.stat(addresses.socket).st_gid == 12345


def test_a_group_is_found_by_name_and_by_number():
    assert find_group("root") == 0
    assert find_group("4711") == 4711
    with pytest.raises(Invalid):
        find_group("no-such-group")


async def test_the_file_of_a_dead_broker_is_replaced(tmp_path: Path):
    (tmp_path / "broker.sock").write_text("left behind")

    async with listening(tmp_path, None) as addresses:
        assert stat.S_ISSOCK(os.stat(addresses.socket).st_mode)


async def test_connections_above_the_limit_are_closed_unheard(tmp_path: Path):
    async with listening(tmp_path, None) as addresses:
        held = [await asyncio.open_unix_connection(addresses.socket) for _ in range(2)]
        for reader, writer in held:
            writer.write(b"hello")
            assert await reader.read(100) == b"hello"
        reader, writer = await asyncio.open_unix_connection(addresses.socket)
        over = await reader.read(100)
        for _, open_writer in [*held, (reader, writer)]:
            open_writer.close()

    assert over == b""


async def test_both_sides_with_certificates_understand_each_other(tmp_path: Path, certificates: Certificates):
    async with listening(tmp_path, certificates) as addresses:
        heard = await say_over_tls(addresses, client_context(certificates.server_ca, certificates.client))

    assert heard == b"hello"


@pytest.mark.parametrize("stranger", ["without one", "of another authority", "of the server's authority", "expired"])
async def test_a_client_without_a_valid_certificate_is_rejected(
    tmp_path: Path, certificates: Certificates, stranger: str
):
    issued = {
        "without one": None,
        "of another authority": Authority(tmp_path, "others").issue("other"),
        "of the server's authority": certificates.server_ca.issue("second-broker"),
        "expired": certificates.client_ca.issue("former", days=-1),
    }[stranger]

    async with listening(tmp_path, certificates) as addresses:
        heard = await say_over_tls(addresses, client_context(certificates.server_ca, issued))

    assert heard == b""


async def test_a_client_that_speaks_no_tls_hears_nothing_of_the_broker(tmp_path: Path, certificates: Certificates):
    async with listening(tmp_path, certificates) as addresses:
        heard = await say_over_tls(addresses, None)

    assert b"hello" not in heard


async def test_a_client_does_not_talk_to_a_broker_of_another_authority(tmp_path: Path, certificates: Certificates):
    async with listening(tmp_path, certificates) as addresses:
        heard = await say_over_tls(addresses, client_context(certificates.client_ca, certificates.client))

    assert heard == b""


def test_unreadable_certificates_are_reported_at_startup(tmp_path: Path, certificates: Certificates):
    mixed = Issued(certificates.server.cert, certificates.client.key)
    folder = save_tls_dir(tmp_path / "tls", certificates.client_ca, mixed)

    with pytest.raises(Invalid, match="BROKER_TLS_DIR"):
        build_tls_context(BrokerSettings(tcp="127.0.0.1:0", tls_dir=folder))
    with pytest.raises(Invalid, match="BROKER_TLS_DIR"):
        build_tls_context(BrokerSettings(tcp="127.0.0.1:0", tls_dir=tmp_path / "none"))


def worker_files(folder: Path, certificates: Certificates, authority: Authority) -> Path:
    return save_tls_dir(folder / "worker", authority, certificates.client)


async def test_a_worker_runs_a_program_over_tls_and_its_line_is_closed_behind_it(
    tmp_path: Path, certificates: Certificates
):
    async def refuse(call: GatewayCall) -> ToolReply:
        return ToolReply(call.id, False)

    broker = ScriptedBroker(tmp_path / "scripted", follow(), Finished("ended", "", 5, POSTURE, REPORT))
    async with asyncio.timeout(60), listening(tmp_path, certificates, broker.serve) as addresses:
        address = parse_address(f"tls://{addresses.tcp}", worker_files(tmp_path, certificates, certificates.server_ca))
        request = RunRequest("run-1", "turn_1", "print('hello')", (), inputs={"big.bin": bytes(3 << 20)})
        result = await build_unseen_sandbox(address).run(request, refuse)
        await broker.all_closed.wait()

    assert result.ok, result.report_text


async def test_a_worker_rejects_a_broker_with_an_untrusted_certificate(tmp_path: Path, certificates: Certificates):
    async with listening(tmp_path, certificates) as addresses:
        address = parse_address(f"tls://{addresses.tcp}", worker_files(tmp_path, certificates, certificates.client_ca))

        with pytest.raises(BrokerUnreachable, match="can't be reached"):
            async with open_broker_connection(address):
                pass


async def test_a_line_over_tcp_notices_that_its_other_end_has_vanished(tmp_path: Path, certificates: Certificates):
    found: list[int] = []

    async def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = writer.get_extra_info("socket")
        found.extend(line.getsockopt(level, option) for level, option, _ in KEEPALIVE)
        await echo(reader, writer)

    async with listening(tmp_path, certificates, look) as addresses:
        await say_over_tls(addresses, client_context(certificates.server_ca, certificates.client))

    assert found == [value for _, _, value in KEEPALIVE]


async def test_a_worker_notices_that_its_broker_has_vanished(tmp_path: Path, certificates: Certificates):
    accepted = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        await echo(reader, writer)

    async with asyncio.timeout(20), listening(tmp_path, certificates, accept) as addresses:
        address = parse_address(f"tls://{addresses.tcp}", worker_files(tmp_path, certificates, certificates.server_ca))
        async with open_broker_connection(address):
            await accepted.wait()
            with find_socket_to(addresses.tcp) as line:
                found = [line.getsockopt(level, option) for level, option, _ in KEEPALIVE]

    assert found == [value for _, _, value in KEEPALIVE]


def find_socket_to(address: str) -> socket.socket:
    """A duplicate of this process's socket that is connected to the address."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            found = socket.socket(fileno=os.dup(number))
            with contextlib.suppress(OSError):
                if found.getpeername() == split_address(address):
                    return found
            found.close()
    raise AssertionError(f"no socket is connected to {address}")
