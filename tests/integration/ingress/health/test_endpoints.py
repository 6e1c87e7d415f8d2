"""Health over HTTP."""

import asyncio
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2


async def test_the_process_is_alive_ready_and_counts(client: httpx2.AsyncClient) -> None:
    alive = await client.get("/healthz")
    ready = await client.get("/readyz")
    metrics = await client.get("/metrics")

    assert alive.json() == {"status": "ok"}
    for header in ("X-Forwarded-For", "Forwarded"):
        assert (await client.get("/metrics", headers={header: "for=203.0.113.7"})).status_code == 404
    assert ready.status_code == 200
    assert ready.json()["status"] == "ready"
    parts = ready.json()["parts"]
    assert set(parts) == {
        "postgres",
        "postgres_disk",
        "redis",
        "redis memory",
        "objects",
        "antivirus",
        "file checks",
        "loops",
    }
    assert parts["antivirus"]["detail"] == "not scanned"
    assert ready.json()["workers"] == []
    assert 'ingress_requests_total{method="GET",route="/readyz",status="200"}' in metrics.text
    assert 'everturn_queued_turns{lane="registered"} 0.0' in metrics.text
    assert {line for line in metrics.text.splitlines() if line.startswith("ingress_part_ready{")} == {
        f'ingress_part_ready{{part="{name}"}} 1.0' for name in parts
    }


async def test_in_production_without_an_antivirus_files_are_refused(start_ingress: Any, refused: Any) -> None:
    ingress = start_ingress(APP_AV_SCAN="1")
    message = {"text": "a", "attachments": [{"filename": "a.txt", "data_base64": "YQ=="}]}

    async with httpx2.AsyncClient(base_url=ingress.url) as http:
        ready = await http.get("/readyz")
        metrics = await http.get("/metrics")
        answer = await http.post("/conversations/default/default/new/messages", json=message)
        plain = await http.post("/conversations/default/default/new/messages", json={"text": "a"})

    assert ready.json()["status"] == "degraded"
    assert ready.json()["parts"]["antivirus"]["ok"] is False
    assert 'ingress_part_ready{part="antivirus"} 0.0' in metrics.text
    refused(answer, 503)
    assert plain.status_code == 202
    assert ingress.ready["antivirus"] == "missing"


async def test_a_database_that_is_away_makes_it_unready(start_ingress: Any, ingress_env: dict[str, str]) -> None:
    away = ingress_env["DATABASE_URL"].rpartition("@")[0] + "@127.0.0.1:9/none"
    ingress = start_ingress(DATABASE_URL=away)

    async with httpx2.AsyncClient(base_url=ingress.url, timeout=20) as http:
        ready = await http.get("/readyz")
        answer = await http.get("/conversations/default/default")

    assert ready.status_code == 503
    assert ready.json()["parts"]["postgres"]["ok"] is False
    assert answer.status_code == 503
    assert "Retry-After" in answer.headers


async def test_concurrent_readiness_checks_share_one_query(start_ingress: Any, tmp_path: Path) -> None:
    clamd = Hanging(str(tmp_path / "clamd"))
    with clamd, clamd.serving():
        ingress = start_ingress(APP_AV_SCAN="1", CLAMD_URL=f"unix://{tmp_path / 'clamd'}")
        before = clamd.asked
        async with httpx2.AsyncClient(base_url=ingress.url, timeout=60) as http:
            answers = await asyncio.gather(*(http.get("/readyz") for _ in range(60)))

    assert {answer.json()["status"] for answer in answers} == {"degraded"}
    assert clamd.asked - before < 30


class Hanging(socketserver.ThreadingUnixStreamServer):
    """Accepts connections, counts them, and hangs up."""

    def __init__(self, path: str) -> None:
        self.asked = 0
        super().__init__(path, socketserver.BaseRequestHandler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        self.asked += 1
        return False

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = threading.Thread(target=self.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            thread.join()
