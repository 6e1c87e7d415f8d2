"""nginx with deploy/nginx.conf before a real ingress: streams, sockets, uploads, limits and addresses of clients."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from helpers.sockets import SocketClient

from everturn_local.ports import load_free_port

CONFIGURATION = Path(__file__).parents[3] / "deploy/nginx.conf"
NEW = "/conversations/default/default/new/messages"
LIMIT_S = 30
PROXY = "127.0.0.9"
"""The address that this nginx connects from."""
MAIN = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  proxy_bind {address};
  include {folder}/everturn.conf;
}}
"""


@dataclass(frozen=True)
class Proxy:
    url: str
    ingress: Any

    async def connect(self, address: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection from one of the addresses of this machine: all of 127.0.0.0/8 is its own."""
        parts = urlsplit(self.url)
        return await asyncio.open_connection(parts.hostname, parts.port, local_addr=(address, 0))

    async def exchange(self, sent: bytes, address: str = "127.0.0.1") -> bytes:
        """The server's answer until it closes the connection."""
        reader, writer = await self.connect(address)
        writer.write(sent)
        came = b""
        async with asyncio.timeout(LIMIT_S):
            with contextlib.suppress(ConnectionError):
                while piece := await reader.read(65_536):
                    came += piece
        writer.close()
        return came


def find_nginx() -> str:
    """The program. Without it the tests are skipped, and fail in CI."""
    found = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("There is no nginx here: apt-get install nginx-light.")
    return found


@pytest.fixture(scope="module")
def proxy(start_ingress: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    program, folder, port = find_nginx(), tmp_path_factory.mktemp("nginx"), load_free_port()
    ingress = start_ingress(
        {"guests_per_minute": 30, "heartbeat_s": 0.5},
        EVERTURN_MODE="production",
        AUTH_ISSUER="i",
        AUTH_AUDIENCE="a",
        AUTH_SECRET="a secret that is long enough for HS256",
        GUEST_SCOPES="default/default",
        RATE_LIMITS_WRITES="off",
        TRUSTED_PROXIES=PROXY,
    )
    text = CONFIGURATION.read_text()
    replaced = {"${INGRESS}": urlsplit(ingress.url).netloc, "${LISTEN}": f"127.0.0.1:{port}"}
    # As the file has them, the tests of slow clients would take half a minute.
    replaced |= {
        "client_header_timeout 15s": "client_header_timeout 1s",
        "client_body_timeout 30s": "client_body_timeout 1s",
    }
    for name, value in replaced.items():
        assert name in text
        text = text.replace(name, value)
    (folder / "everturn.conf").write_text(text)
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder, address=PROXY))
    running = subprocess.Popen([program, "-p", folder, "-e", folder / "start.log", "-c", folder / "nginx.conf"])
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_up(running, url, folder)
        yield Proxy(url, ingress)
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(LIMIT_S)


def wait_until_up(running: "subprocess.Popen[bytes]", url: str, folder: Path) -> None:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        assert running.poll() is None, (folder / "start.log").read_text()
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(f"{url}/healthz").status_code == 200:
                return
        time.sleep(0.05)
    raise TimeoutError("nginx did not start")


@pytest.fixture
async def guest(proxy: Proxy) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=proxy.url, timeout=LIMIT_S) as http:
        made = (await http.post("/guests/default/default")).json()
        http.headers["Authorization"] = f"Bearer {made['token']}"
        yield http


async def test_events_come_through_when_they_happen(guest: httpx2.AsyncClient) -> None:
    accepted = (await guest.post(NEW, json={"text": "Hello."})).json()
    path = f"/conversations/default/default/{accepted['conversation_id']}"

    async with asyncio.timeout(LIMIT_S), guest.stream("GET", f"{path}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.aiter_lines()
        # Each of these is sent alone, and would stay in a buffer.
        await read_until(lines, "event:")
        await read_until(lines, ":")
        await guest.patch(path, json={"title": "Renamed"})
        while "Renamed" not in await anext(lines):
            pass


async def read_until(lines: AsyncIterator[str], begin: str) -> None:
    """Read up to a line that begins so."""
    while not (await anext(lines)).startswith(begin):
        pass


async def test_a_socket_is_upgraded_and_joins(proxy: Proxy, guest: httpx2.AsyncClient) -> None:
    token = guest.headers["Authorization"].removeprefix("Bearer ")
    client = await SocketClient(proxy.url).connect(token=token, tenant="default", project="default")
    try:
        assert (await client.until("session_info"))["user_id"]
        answer = await client.call("chat_message", {"conversation_id": "new", "text": "x" * 300_000})
    finally:
        await client.sio.disconnect()

    assert answer["status"] == 202


async def test_an_upload_of_megabytes_arrives_and_one_above_the_limit_does_not(guest: httpx2.AsyncClient) -> None:
    lines = b"a,b\n" * 1_000_000
    parts = {"message": (None, b'{"text": "Look."}', "application/json"), "files": ("a.csv", lines, "text/csv")}
    taken = await guest.post(NEW, files=parts)
    large = {**parts, "files": ("a.csv", lines * 7, "text/csv")}

    refused = await guest.post(NEW, files=large)

    # All of it arrived, and without an antivirus no file is accepted here.
    assert (taken.status_code, "'a.csv'" in taken.json()["detail"]) == (503, True)
    assert refused.status_code == 413


async def test_headers_above_the_limit_are_refused(guest: httpx2.AsyncClient) -> None:
    assert (await guest.get("/healthz", headers={"X-Large": "x" * 9_000})).status_code in {400, 431}
    assert (await guest.get("/healthz", headers={"X-Large": "x" * 4_000})).status_code == 200


async def test_headers_and_bodies_that_stop_end_their_connection(proxy: Proxy, guest: httpx2.AsyncClient) -> None:
    token = guest.headers["Authorization"]
    head = f"POST {NEW} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nContent-Type: application/json\r\n"

    headers = await proxy.exchange(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    body = await proxy.exchange(f'{head}Content-Length: 100\r\n\r\n{{"text": '.encode())

    assert headers == b"" or b" 408 " in headers.partition(b"\r\n")[0]
    assert body == b"" or b" 408 " in body.partition(b"\r\n")[0]


async def test_a_client_is_known_by_its_own_address_and_can_not_name_another(proxy: Proxy) -> None:
    async def come(address: str, claimed: str) -> bytes:
        head = "POST /guests/default/default HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n"
        answer = await proxy.exchange(f"{head}X-Forwarded-For: {claimed}\r\n\r\n".encode(), address)
        return answer.split()[1]

    from_one = [await come("127.0.0.21", f"192.0.2.{n}") for n in range(11)]
    from_another = await come("127.0.0.22", "192.0.2.1")

    # One address can have a third of guests_per_minute.
    assert from_one == [b"201"] * 10 + [b"429"]
    assert from_another == b"201"


async def test_numbers_of_the_operator_are_not_public(guest: httpx2.AsyncClient, proxy: Proxy) -> None:
    assert (await guest.get("/metrics")).status_code == 404
    async with httpx2.AsyncClient(base_url=proxy.ingress.url, timeout=LIMIT_S) as direct:
        assert (await direct.get("/metrics")).status_code == 200
