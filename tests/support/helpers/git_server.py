"""A git server over HTTPS on this machine: git's own http-backend behind a certificate made for the test."""

import base64
import datetime
import os
import ssl
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class GitServer:
    """Serves the repositories below `folder`. With `password`, only to this user; with `redirect_to`, it sends every
    request there; with `refuse_with`, it refuses every request with these words."""

    def __init__(self, folder: Path, certificate: Path, port: int) -> None:
        self.folder = folder
        self.certificate = certificate
        self.port = port
        self.user = "x-access-token"
        self.password = ""
        self.redirect_to = ""
        self.refuse_with = ""
        self.is_down = False
        self.credentials: list[str] = []
        """Those that were sent, `user:password`."""

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    def url(self, name: str) -> str:
        return f"https://{self.host}/{name}"


@contextmanager
def serve_git(folder: Path, private: Path) -> Generator[GitServer]:
    """Serve while it is open; the files of the certificate are written into `private`."""
    certificate, key = _make_certificate(private)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _answer(self, server)

        def do_POST(self) -> None:
            _answer(self, server)

        def log_message(self, format: str, *args: object) -> None:
            """Tests read no log of requests."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener.socket = context.wrap_socket(listener.socket, server_side=True, do_handshake_on_connect=False)
    server = GitServer(folder, certificate, listener.server_address[1])
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def _answer(request: BaseHTTPRequestHandler, server: GitServer) -> None:
    body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
    given = request.headers.get("Authorization", "")
    credential = base64.b64decode(given.removeprefix("Basic ")).decode()
    if credential:
        server.credentials.append(credential)
    if server.is_down:
        return _send(request, 503, {}, b"")
    if server.redirect_to:
        return _send(request, 302, {"Location": f"{server.redirect_to}{request.path}"}, b"")
    if server.password and credential != f"{server.user}:{server.password}":
        return _send(request, 401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
    if server.refuse_with:
        words = server.refuse_with.format(sent=given, credential=credential).encode()
        packet = b"ERR " + words
        service = b"# service=git-upload-pack\n"
        answer = b"%04x%s0000%04x%s0000" % (len(service) + 4, service, len(packet) + 4, packet)
        return _send(request, 200, {"Content-Type": "application/x-git-upload-pack-advertisement"}, answer)
    return _run_backend(request, server, body)


def _run_backend(request: BaseHTTPRequestHandler, server: GitServer, body: bytes) -> None:
    parts = urlsplit(request.path)
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_PROJECT_ROOT": str(server.folder),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "GIT_CONFIG_KEY_1": "http.receivepack",
        "GIT_CONFIG_VALUE_1": "true",
        "PATH_INFO": parts.path,
        "QUERY_STRING": parts.query,
        "REQUEST_METHOD": request.command,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
    }
    done = subprocess.run(["git", "http-backend"], env=environment, input=body, capture_output=True, check=True)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
    _send(request, int(headers.pop("Status", "200").split()[0]), headers, content)


def _send(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], content: bytes) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)


def _make_certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private
