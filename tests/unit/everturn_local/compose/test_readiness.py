"""Waiting until what was started is ready."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from everturn_local.compose.readiness import build_url, load_readiness, wait_ready
from everturn_local.ports import load_free_port

PART = {"ok": True, "detail": ""}
Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that gives these answers, the last one for ever."""
    servers: list[HTTPServer] = []

    def start(*answers: tuple[int, Mapping[str, Any]]) -> str:
        waiting = list(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None: ...

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_it_is_ready_with_all_its_workers(serve: Serve):
    few = {"parts": {"redis": PART}, "workers": [{}]}
    all_of_them = {"parts": {"redis": PART, "antivirus": {"ok": False, "detail": "away"}}, "workers": [{}, {}]}
    url = serve((503, {}), (200, few), (200, all_of_them))

    found = wait_ready(url, 2, limit_s=60)

    assert (found.missing, found.failing) == ("", ["antivirus: away"])


def test_what_is_missing_at_the_end_is_told(serve: Serve):
    url = serve((200, {"parts": {}, "workers": None}))

    assert wait_ready(url, 2, limit_s=0).missing == "0 of 2 workers are there."


def test_nobody_there_and_no_answer_that_can_be_read_are_not_ready(serve: Serve):
    url = f"http://127.0.0.1:{load_free_port()}"

    assert url in load_readiness(url, 1).missing
    assert load_readiness(serve((503, {"parts": {}})), 1).missing


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("fe80::1", "http://[fe80::1]:80"),
    ],
)
def test_what_is_bound_everywhere_is_reached_by_loopback(bind: str, url: str):
    assert build_url(bind, 80) == url
