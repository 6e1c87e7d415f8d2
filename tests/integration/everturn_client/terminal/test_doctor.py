"""`everturn doctor` against healthy, degraded, foreign and missing servers."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from everturn_client.backoff import Timings
from everturn_client.client import EverturnClient
from everturn_client.errors import Unreachable
from everturn_client.terminal.doctor import run_doctor
from everturn_client.terminal.screen import Screen

READY = {"status": "ready", "parts": {"postgres": {"ok": True, "detail": ""}}, "workers": []}
AWAY = {"status": "unready", "parts": {"postgres": {"ok": False, "detail": "down"}}, "workers": None}
QUICK = Timings(first_delay_s=0.001, max_delay_s=0.01)


@asynccontextmanager
async def serving(ready: Response, listing: Response) -> AsyncIterator[str]:
    async def give_ready(_: Request) -> Response:
        return ready

    async def give_listing(_: Request) -> Response:
        return listing

    routes = [Route("/readyz", give_ready), Route("/conversations/default/default", give_listing)]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=0, log_config=None, lifespan="off"))
    running = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


async def examine(url: str) -> tuple[int, str]:
    said = io.StringIO()
    async with EverturnClient(url, timings=QUICK) as client:
        problems = await run_doctor(client, Screen(io.StringIO(), said, colour=False))
    return problems, said.getvalue()


def listing() -> Response:
    return JSONResponse({"items": [], "next_cursor": None})


def refusal(status: int) -> Response:
    body: dict[str, Any] = {"type": "urn:everturn:problem:x", "title": "No", "status": status}
    return JSONResponse(body, status_code=status)


async def test_a_server_without_workers_is_reported_with_advice() -> None:
    async with serving(JSONResponse(READY), listing()) as url:
        problems, said = await examine(url)

    assert problems == 1
    assert f"ok       server       {url} answers with status ready" in said
    assert "PROBLEM  workers      none is running" in said
    assert "-> start a worker" in said
    assert "ok       credential   is accepted" in said


async def test_an_unready_server_reports_the_missing_part() -> None:
    async with serving(JSONResponse(AWAY, status_code=503), refusal(503)) as url:
        problems, said = await examine(url)

    assert problems == 3
    assert "PROBLEM  postgres     down" in said
    assert "-> check the Postgres server" in said


async def test_a_rejected_credential_is_reported() -> None:
    async with serving(JSONResponse({**READY, "workers": None}), refusal(401)) as url:
        problems, said = await examine(url)

    assert problems == 2
    assert "EVERTURN_TOKEN" in said


@pytest.mark.parametrize("broken", ["unreadable", "cut"])
async def test_readiness_is_reported_even_if_the_next_response_fails(broken: str) -> None:
    listing = PlainTextResponse("welcome") if broken == "unreadable" else StreamingResponse(break_off())
    async with serving(JSONResponse(AWAY, status_code=503), listing) as url:
        problems, said = await examine(url)

    assert problems == 3
    assert "PROBLEM  postgres     down" in said
    assert "PROBLEM  credential   could not be checked" in said


async def break_off() -> AsyncIterator[bytes]:
    yield b"{"
    raise OSError("The connection breaks.")


async def test_a_foreign_server_is_recognized() -> None:
    async with serving(PlainTextResponse("welcome"), refusal(404)) as url:
        problems, said = await examine(url)

    assert problems == 2
    assert "is not an Everturn ingress" in said


async def test_a_missing_server_is_left_to_the_caller() -> None:
    with pytest.raises(Unreachable):
        await examine("http://127.0.0.1:9")
