"""Clients of a real ingress that request much and read nothing."""

import base64
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from helpers.waiting import wait_until

from ingress.conversations.endpoints import READS_OF_PERSON

BASE = "/conversations/default/default"
LIMIT_S = 30
ROWS = b"name,sum\n" * 600_000
"""More than the kernels of both ends keep."""
LONG = "x" * 990_000


@pytest.fixture(scope="module")
def bounded(start_ingress: Callable[..., Any]) -> Any:
    return start_ingress({"downloads_of_user": 2})


@pytest.fixture(scope="module")
def impatient(start_ingress: Callable[..., Any]) -> Any:
    return start_ingress({"send_s": 0.5})


@pytest.fixture(scope="module")
def paths(bounded: Any) -> tuple[str, str]:
    """A large file and the export of its conversation."""
    with httpx2.Client(base_url=bounded.url, timeout=LIMIT_S) as http:
        files = [{"filename": "a.csv", "data_base64": base64.b64encode(ROWS).decode()}]
        sent = http.post(f"{BASE}/new/messages", json={"text": "hello", "attachments": files}).json()
        state = http.post(f"{BASE}/fetch", json={"conversation_id": sent["conversation_id"]}).json()
    return state["turns"][0]["attachments"][0]["url"], f"{BASE}/{sent['conversation_id']}/export"


@pytest.fixture
def silent() -> Iterator[Callable[[Any, str], socket.socket]]:
    """Send a request, and read only the beginning of the answer."""
    with ExitStack() as opened:

        def ask(ingress: Any, path: str) -> socket.socket:
            parts = urlsplit(ingress.url)
            client = opened.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(LIMIT_S)
            client.connect((parts.hostname, parts.port))
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert client.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
            return client

        yield ask


def read_status(ingress: Any, path: str) -> int:
    return httpx2.get(f"{ingress.url}{path}", timeout=LIMIT_S).status_code


async def test_slots_of_downloads_and_exports_are_released_when_clients_leave(
    bounded: Any, paths: tuple[str, str], silent: Callable[[Any, str], socket.socket], refused: Callable[..., Any]
) -> None:
    file, export = paths
    clients = [silent(bounded, file) for _ in range(2)]

    await wait_until(lambda: read_status(bounded, file) == 429)
    refused(httpx2.get(f"{bounded.url}{export}", timeout=LIMIT_S), 429)
    assert httpx2.get(f"{bounded.url}{file}", headers={"X-Dev-User": "ben"}, timeout=LIMIT_S).status_code == 404
    for client in clients:
        client.close()

    await wait_until(lambda: read_status(bounded, file) == 200)
    await wait_until(lambda: read_status(bounded, export) == 200)


async def test_answers_with_turns_have_slots_until_their_clients_have_taken_them(
    bounded: Any, silent: Callable[[Any, str], socket.socket], refused: Callable[..., Any]
) -> None:
    with httpx2.Client(base_url=bounded.url, timeout=LIMIT_S) as http:
        sent = http.post(f"{BASE}/new/messages", json={"text": LONG}).json()
        for _ in range(6):
            http.post(f"{BASE}/{sent['conversation_id']}/messages", json={"text": LONG}).raise_for_status()
    turn = f"{BASE}/{sent['conversation_id']}/turns/{sent['turn_id']}"

    clients = [silent(bounded, turn) for _ in range(READS_OF_PERSON)]

    refused(httpx2.get(f"{bounded.url}{turn}", timeout=LIMIT_S), 429)
    assert httpx2.get(f"{bounded.url}{turn}", headers={"X-Dev-User": "ben"}, timeout=LIMIT_S).status_code == 404
    for client in clients:
        client.close()
    await wait_until(lambda: read_status(bounded, turn) == 200)


async def test_who_takes_nothing_of_an_answer_is_cut_off_and_counted(
    impatient: Any, paths: tuple[str, str], silent: Callable[[Any, str], socket.socket]
) -> None:
    client = silent(impatient, paths[0])

    await wait_until(lambda: "ingress_stuck_clients_total 1.0" in httpx2.get(f"{impatient.url}/metrics").text)

    taken = bytearray()
    while piece := client.recv(65_536):
        taken += piece
    assert len(taken) < len(ROWS)
    assert read_status(impatient, paths[0]) == 200
