"""Programs with a network, on the real sandbox, against a server of this machine: what works, and what never does."""

import asyncio
import contextlib
import io
import os
import time
import zipfile
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx2
import pip
import pytest
from helpers.provider import Answer, WireProvider, run_provider

from chat_proc.model_gateway.gateway import GatewayModel, open_gateways
from chat_proc.models.endpoints import Endpoint
from chat_proc.models.roles import ModelChoice
from chat_proc.models.upstreams import find_upstream
from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.network import NetworkAccess
from chat_proc.tools.web.client import AddressGuard
from everturn.core.logging import Redactor
from everturn.execution.messages import ALLOWED_HOSTS_ONLY, MIB, Capability, GatewayCall, ToolGrant, ToolReply
from everturn.execution.profiles import load_profiles
from everturn.models.port import ModelTraits
from everturn_testing.turns.live_turn import RecordingTurn
from exec_supervisor.broker.dial_port import build_certificate, build_server_context

HOST = "api.example.com"
STOPS_WITHIN_S = 4.0
ONE_TOOL = Capability((ToolGrant("lab_tools.ping"),))
CONTEXT = "import os, ssl, urllib.request\nTLS = ssl.create_default_context(cafile=os.path.join(WORKDIR, 'ca.pem'))\n"
PURE = (
    "anyio",
    "certifi",
    "h11",
    "httpcore2",
    "httpx2",
    "idna",
    "pip",
    "sniffio",
    "truststore",
    "typing_extensions.py",
)


class Server:
    """A web server with the certificate of HOST. It sends as many bytes as the path names, and counts connections."""

    def __init__(self) -> None:
        self.open = 0
        self.sent = 0
        self.port = 0
        self.certificate = build_certificate(HOST)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            with contextlib.suppress(OSError, EOFError):
                path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
                size = int(path[1:]) if path[1:].isdecimal() else 0
                body = f"{path}\n".encode() if not size else b""
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (size + len(body), body))
                for _ in range(size >> 16):
                    writer.write(bytes(1 << 16))
                    await writer.drain()
                    self.sent += 1 << 16
                writer.close()
                await writer.wait_closed()
        finally:
            self.open -= 1
            writer.transport.abort()


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    served = Server()
    context = build_server_context(served.certificate)
    listener = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=context)
    served.port = listener.sockets[0].getsockname()[1]
    yield served
    listener.close()


@pytest.fixture
async def provider() -> AsyncGenerator[WireProvider]:
    async with run_provider(WireProvider()) as wire:
        yield wire


@pytest.fixture
def run_networked(sandbox: SupervisedSandbox, server: Server, run_on):
    """Runs a program whose profile allows HOST and hosts below example.org; all but one have the server's address."""

    async def resolve(host: str, port: int, turn_id: str) -> list[str]:
        return ["10.0.0.1"] if host == "private.example.org" else ["127.0.0.1"]

    guard = AddressGuard(resolve, is_allowed=lambda it: str(it) == "127.0.0.1", ports=range(1, 1 << 16))
    document = f'{{"networked": {{"network": ["{HOST}:{server.port}", "*.example.org:{server.port}"]}}}}'
    run = run_on(sandbox.with_network(NetworkAccess(load_profiles(document), guard.find_addresses)))
    inputs = {"ca.pem": server.certificate.pem}

    async def run_program(program: str, **options):
        options["inputs"] = {**inputs, **options.get("inputs", {})}
        return await run(CONTEXT + f"URL = 'https://{HOST}:{server.port}'\n{program}", profile="networked", **options)

    return run_program


async def test_clients_reach_the_hosts_of_the_profile_through_the_proxy(run_networked, server):
    program = """
import shutil, subprocess
print(urllib.request.urlopen(f"{URL}/urllib", context=TLS).read())
if shutil.which("curl"):
    print(subprocess.check_output(["curl", "-sS", "--cacert", "ca.pem", f"{URL}/curl"]))
"""

    result = await run_networked(program)

    assert result.ok, result.report_text
    assert "/urllib" in result.user_out_tail
    [used] = result.record.connections
    assert (used.host, used.port, used.refused) == (HOST, server.port, {})
    assert f"Connected to {HOST}:{server.port}" in result.report_text
    assert result.record.posture and result.record.posture.network == ALLOWED_HOSTS_ONLY


@pytest.mark.slow  # imports both libraries from an archive, without compiled files
async def test_pip_and_httpx_work_unchanged(run_networked):
    program = """
import subprocess, sys
sys.path.insert(0, os.path.join(WORKDIR, "pure.zip"))
import httpx2
print(httpx2.get(f"{URL}/httpx", verify=TLS).text)
from pip._vendor import requests
print(requests.get(f"{URL}/requests", verify="ca.pem").text)
done = subprocess.run([sys.executable, "pure.zip/pip", "download", "--no-cache-dir", "--disable-pip-version-check",
                       "--cert", "ca.pem", "--index-url", f"{URL}/simple", "thing"], capture_output=True, text=True)
print(done.stdout, done.stderr)
"""

    result = await run_networked(program, inputs={"pure.zip": build_archive()}, timeout_s=120)

    assert result.ok, result.report_text
    for said in (
        "/httpx",
        "/requests",
        f"Looking in indexes: https://{HOST}",
        "No matching distribution found for thing",
    ):
        assert said in result.user_out_tail
    assert "SSL" not in result.user_out_tail


ESCAPES = """
import socket, subprocess
from urllib.parse import urlsplit
port = urlsplit(URL).port
def attempt(name, work):
    try: print(name, "ESCAPED", work())
    except Exception as error: print(name, "denied:", error)
def fetch(url):
    return urllib.request.urlopen(url, context=TLS, timeout=5).status
def direct(address, family=socket.AF_INET, kind=socket.SOCK_STREAM, protocol=0):
    with socket.socket(family, kind, protocol) as it:
        it.settimeout(2); it.connect(address); return "connected"
for host in ("127.0.0.1", "10.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "localhost",
             "api.example.com.evil.org"):
    attempt(f"host {host}", lambda: fetch(f"https://{host}:{port}/"))
attempt("other port", lambda: fetch("https://api.example.com/"))
attempt("plain http", lambda: fetch("http://api.example.com/"))
attempt("metadata", lambda: fetch("http://169.254.169.254/latest/meta-data/"))
attempt("name of a private address", lambda: fetch(f"https://private.example.org:{port}/"))
attempt("parent of a pattern", lambda: fetch(f"https://example.org:{port}/"))
attempt("raw address", lambda: direct(("93.184.216.34", 443)))
attempt("metadata without proxy", lambda: direct(("169.254.169.254", 80)))
attempt("port of this machine", lambda: direct(("127.0.0.1", port)))
attempt("ipv6", lambda: direct(("::1", port), socket.AF_INET6))
attempt("datagram", lambda: direct(("127.0.0.1", 53), socket.AF_INET, socket.SOCK_DGRAM))
attempt("raw socket", lambda: direct(("127.0.0.1", 0), socket.AF_INET, socket.SOCK_RAW, 1))
attempt("other protocol", lambda: direct(("127.0.0.1", port), socket.AF_INET, socket.SOCK_STREAM, 132))
attempt("netlink", lambda: socket.socket(16, socket.SOCK_RAW))
attempt("dns", lambda: socket.getaddrinfo("api.example.com", 443))
attempt("tls in the kernel", lambda: socket.socket().setsockopt(6, 31, b"tls"))
for option in (26, 50, 51, 52):
    attempt("socket filter", lambda: socket.socket().setsockopt(socket.SOL_SOCKET, option, bytes(16)))
from everturn.execution.framing import encode_frame
for frame in (dict(kind="open_stream", stream=0, host="127.0.0.1", port=port),
              dict(kind="stream_data", stream=1, data=b"x"),
              dict(kind="open_stream", stream=-1, host="api.example.com:443@evil.org", port=True)):
    def forge():
        with socket.socket(socket.AF_UNIX) as it:
            it.settimeout(5); it.connect("/run/everturn/network.sock"); it.sendall(encode_frame(frame))
            answer = it.recv(4096)
            if b'"error":""' in answer: return answer
            raise OSError(answer)
    attempt("forged frame", forge)
"""


async def test_no_other_way_leads_out(run_networked, server):
    result = await run_networked(ESCAPES, timeout_s=60)

    lines = result.user_out_tail.splitlines()
    assert result.ok, result.report_text
    assert len(lines) == 30
    assert lines.count("socket filter denied: [Errno 1] Operation not permitted") == 4
    assert [line for line in lines if "ESCAPED" in line] == []
    assert f"Programs may connect to: {HOST}:{server.port}, *.example.org:{server.port}." in result.user_out_tail
    assert "is not on the public internet" in result.user_out_tail
    refused = {record.host: dict(record.refused) for record in result.record.connections}
    assert refused["private.example.org"] == {"not_public": 1}
    assert refused["169.254.169.254"] == {"not_allowed": 1}
    assert not any(record.opened for record in result.record.connections)
    assert "Not connected to 169.254.169.254:80" in result.report_text
    assert server.sent == 0


CALL_A_MODEL = """
import json, os, urllib.request
def ask(port=""):
    body = json.dumps({"model": "everturn", "max_tokens": 9, "messages": []}).encode()
    request = urllib.request.Request(f"http://model.everturn{port}/v1/messages", body, {"X-Api-Key": "none"})
    try: return json.load(urllib.request.urlopen(request, timeout=10))
    except Exception as error: return f"refused: {error}"
for _ in range(3): print(ask())
for port in (":443", ":8080"): print(ask(port))
print([value for value in os.environ.values() if "operator-secret" in value])
"""


async def test_a_program_calls_its_model_server_and_no_other_run_does(sandbox, run_on, provider):
    async def find_nothing(host, port, turn_id):
        raise AssertionError(host)

    document = '{"networked": {"network": ["model.everturn:80"]}}'
    run = run_on(sandbox.with_network(NetworkAccess(load_profiles(document), find_nothing)))
    reply = b'{"type": "message", "usage": {"input_tokens": 7, "output_tokens": 3}}'
    provider.answer(Answer([reply], headers={"content-type": "application/json"}))
    endpoints = {"local": Endpoint(protocol="anthropic", base_url=provider.url, key_env="LOCAL_KEY")}
    upstream = find_upstream(ModelChoice("local", "m", ""), {"LOCAL_KEY": "operator-secret"}, endpoints)
    model, turn = GatewayModel("coding", ModelTraits("m", 10_000, False, False), upstream), RecordingTurn()

    async with open_gateways({}, {}, redactor=Redactor()) as gateways:
        gateway = gateways.open(model, None, turn, run="exec_1", max_output_tokens=100)
        result = await run(CALL_A_MODEL, profile="networked", serve_models=gateway.serve)
        without = await run(CALL_A_MODEL, profile="networked")

    assert result.ok, result.report_text
    *replies, other, another, leaked = result.user_out_tail.splitlines()
    assert replies == ["{'type': 'message', 'usage': {'input_tokens': 7, 'output_tokens': 3}}"] * 3
    assert "no model server" in other or "is not allowed" in other
    assert "model.everturn:8080 is not allowed" in another
    assert leaked == "[]"
    assert [used.input_tokens for used in turn.recorded] == [7] * 3
    assert {received.headers["authorization"] for received in provider.received} == {"Bearer operator-secret"}
    assert without.user_out_tail.count("refused: HTTP Error 403: This run has no model server") == 3


async def test_connections_inside_have_small_buffers(run_networked, sandbox):
    if not sandbox.image and (os.geteuid() or not os.access("/proc/sys/net/ipv4/tcp_rmem", os.W_OK)):
        pytest.skip("only root can limit them outside containers")
    program = "print([open(f'/proc/sys/net/ipv4/tcp_{it}mem').read().split()[2] for it in 'rw'])"

    result = await run_networked(program)

    assert result.user_out_tail == "['262144', '262144']\n", result.report_text


async def test_a_program_without_a_network_gets_none(run):
    program = """
import os, socket
print([name for name in os.environ if "proxy" in name.lower()], os.path.exists("/run/everturn/network.sock"))
try: socket.socket()
except OSError as error: print(error)
"""

    result = await run(program)

    assert result.user_out_tail == "[] False\n[Errno 1] Operation not permitted\n"


async def test_a_sandbox_with_a_network_that_the_worker_did_not_expect_runs_nothing(run):
    result = await run("print(1)", profile="networked")

    assert (result.exit.by, result.user_out_tail) == ("not_run", "")
    assert "its profile has no network, and the sandbox has one" in result.report_text


async def test_tools_answer_beside_a_large_download(run_networked, server):
    async def ping(call: GatewayCall) -> ToolReply:
        return ToolReply(call.id, True, "pong")

    program = f"""
import asyncio, time
def download():
    with urllib.request.urlopen(f"{{URL}}/{24 * MIB}", context=TLS) as answer:
        return sum(len(part) for part in iter(lambda: answer.read(1 << 16), b""))
async def measure():
    longest = 0.0
    for _ in range(20):
        began = time.monotonic()
        assert await lab_tools.ping() == "pong"
        longest = max(longest, time.monotonic() - began)
        await asyncio.sleep(0.02)
    return longest
print(await asyncio.gather(asyncio.to_thread(download), measure()))
"""
    result = await run_networked(program, timeout_s=60, capability=ONE_TOOL, call_tool=ping)

    assert result.ok, result.report_text
    size, longest = eval(result.user_out_tail)
    assert size == 24 * MIB
    assert longest < 2.0
    assert len(result.record.calls) == 20


@pytest.mark.parametrize("by", ["stop", "cancellation"])
async def test_a_stopped_run_closes_its_connections_at_once(run_networked, server, by):
    stop = asyncio.Event()
    program = """
from concurrent.futures import ThreadPoolExecutor
def download(_):
    with urllib.request.urlopen(f"{URL}/4000000000", context=TLS) as answer:
        while answer.read(1 << 16): pass
with ThreadPoolExecutor(4) as pool: list(pool.map(download, range(4)))
"""
    running = asyncio.create_task(run_networked(program, timeout_s=60, stop=stop))
    async with asyncio.timeout(30):
        while server.open < 4 or server.sent < MIB:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.02)
    began = time.monotonic()

    if by == "stop":
        stop.set()
        result = await running
        assert (result.error.code, result.exit.by) == ("cancelled", "cancelled")
        assert result.record.connections[0].opened == 4
    else:
        running.cancel()
        await asyncio.wait((running,))
    async with asyncio.timeout(STOPS_WITHIN_S):
        while server.open:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.02)

    assert time.monotonic() - began < STOPS_WITHIN_S


def build_archive() -> bytes:
    """The libraries of HTTP clients, as an archive that Python can import from."""
    packages = Path(pip.__file__).parents[1]
    assert Path(httpx2.__file__).parents[1] == packages
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        places = (place for name in PURE for place in (packages / name, *packages.glob(f"{name}-*.dist-info")))
        for place in filter(Path.exists, places):
            for file in place.rglob("*") if place.is_dir() else (place,):
                if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".so":
                    archive.write(file, os.fspath(file.relative_to(packages)))
    return data.getvalue()
