"""Single requests over unreliable connections."""

import asyncio
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from everturn_client.backoff import Timings
from everturn_client.errors import BadInput, ProblemError, Unreachable
from everturn_client.requests import Requests

if TYPE_CHECKING:
    from tests.integration.everturn_client.conftest import SmallServer

QUICK = Timings(first_delay_s=0.001, max_delay_s=0.01)
MESSAGES = "/conversations/default/default/new/messages"


def open_requests(url: str, *, token: str | None = None, dev_user: str | None = None) -> Requests:
    return Requests(url, token=token, dev_user=dev_user, timings=QUICK, random=lambda: 0.5)


@pytest.mark.parametrize("fault", ["cut", 503, 429])
async def test_a_submission_is_retried_with_its_key(server: "SmallServer", fault: int | str) -> None:
    server.scenario.start_turn("Hi")
    server.submit_faults = [fault, fault]
    requests = open_requests(server.url)

    await requests.send("POST", MESSAGES, json={"text": "Hi"}, key="k1")
    await requests.aclose()

    assert [headers["idempotency-key"] for headers in server.sent("/messages")] == ["k1"] * 3
    assert len(server.accepted) == 1


async def test_a_retry_waits_for_the_first_attempt(server: "SmallServer") -> None:
    server.scenario.start_turn("Hi")
    server.submit_faults = ["cut", 409]
    requests = open_requests(server.url)

    await requests.send("POST", MESSAGES, json={"text": "Hi"}, key="k1")
    await requests.aclose()

    assert len(server.sent("/messages")) == 3


@pytest.mark.parametrize(("status", "tries"), [(409, 1), (422, 1), (401, 1), (503, 4)])
async def test_a_rejection_is_raised(server: "SmallServer", status: int, tries: int) -> None:
    server.submit_faults = [status] * 9
    requests = open_requests(server.url)

    with pytest.raises(ProblemError) as raised:
        await requests.send("POST", MESSAGES, json={"text": "Hi"}, key="k1")
    await requests.aclose()

    assert raised.value.problem.title == "Refused on purpose."
    assert len(server.sent("/messages")) == tries


async def test_a_call_without_a_key_is_sent_once(server: "SmallServer") -> None:
    server.scenario.start_turn("Hi")
    server.submit_faults = ["cut"]
    requests = open_requests(server.url)

    with pytest.raises(Unreachable):
        await requests.send("POST", MESSAGES, json={"text": "Hi"})
    await requests.aclose()

    assert len(server.sent("/messages")) == 1


async def test_credentials_are_stripped_and_sent_with_every_request(server: "SmallServer") -> None:
    requests = open_requests(server.url, token=" secret ", dev_user="ann ")

    await requests.send("GET", "/conversations/default/default")
    await requests.aclose()

    headers = server.sent("/conversations")[0]
    assert (headers["authorization"], headers["x-dev-user"]) == ("Bearer secret", "ann")


async def test_an_invalid_token_is_rejected_and_not_shown() -> None:
    with pytest.raises(BadInput, match="The token contains a line break") as refused:
        open_requests("http://127.0.0.1:9", token="evk_secret\r")

    assert "secret" not in str(refused.value)


async def test_a_missing_server_is_unreachable_and_named() -> None:
    requests = open_requests("http://127.0.0.1:9")

    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"):
        await requests.send("GET", "/x")
    await requests.aclose()


class Pauses:
    """Counts the pauses between attempts of a request; `enough` is set after `wanted` of them."""

    def __init__(self, wanted: int) -> None:
        self.count = 0
        self.enough = asyncio.Event()
        self._wanted = wanted

    def draw(self) -> float:
        self.count += 1
        if self.count == self._wanted:
            self.enough.set()
        return 0.5


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
    await writer.drain()
    writer.close()


def choose_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_restarting_server_is_awaited_and_reported_once(method: str) -> None:
    port, pauses, reports = choose_port(), Pauses(12), list[Unreachable]()
    requests = Requests(
        f"http://127.0.0.1:{port}",
        token=None,
        dev_user=None,
        timings=replace(QUICK, reconnect_s=30.0),
        random=pauses.draw,
        report_unreachable=reports.append,
    )

    sending = asyncio.ensure_future(requests.send(method, "/x"))
    await asyncio.wait_for(pauses.enough.wait(), 20)
    async with await asyncio.start_server(answer, "127.0.0.1", port):
        body = await asyncio.wait_for(sending, 20)
    await requests.aclose()

    assert body == b"{}"
    assert [f"127.0.0.1:{port}" in str(error) for error in reports] == [True]


async def test_a_server_that_rejects_before_it_stops_is_reported() -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        writer.close()
        refused.append(writer)
        if len(refused) == 2:
            server.close()

    refused: list[asyncio.StreamWriter] = []
    port, reports = choose_port(), list[Unreachable]()
    requests = Requests(
        f"http://127.0.0.1:{port}",
        token=None,
        dev_user=None,
        timings=replace(QUICK, reconnect_s=0.3),
        random=lambda: 1.0,
        report_unreachable=reports.append,
    )

    server = await asyncio.start_server(refuse, "127.0.0.1", port)
    with pytest.raises(Unreachable):
        await asyncio.wait_for(requests.send("GET", "/x"), 20)
    await requests.aclose()

    assert len(reports) == 1


async def test_a_download_waits_for_a_restarting_server() -> None:
    port, pauses, reports = choose_port(), Pauses(12), list[Unreachable]()
    requests = Requests(
        f"http://127.0.0.1:{port}",
        token=None,
        dev_user=None,
        timings=replace(QUICK, reconnect_s=30.0),
        random=pauses.draw,
        report_unreachable=reports.append,
    )

    async def download() -> bytes:
        async with requests.stream("GET", "/x", params={}) as response:
            return await response.aread()

    downloading = asyncio.ensure_future(download())
    await asyncio.wait_for(pauses.enough.wait(), 20)
    async with await asyncio.start_server(answer, "127.0.0.1", port):
        body = await asyncio.wait_for(downloading, 20)
    await requests.aclose()

    assert body == b"{}"
    assert len(reports) == 1


async def test_a_conflict_after_a_restart_is_raised_at_once() -> None:
    # No earlier attempt reached the server, so the conflict is not with one of them.
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        refused.append(writer)
        writer.write(b"HTTP/1.1 409 X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    refused: list[asyncio.StreamWriter] = []
    port, pauses = choose_port(), Pauses(6)
    timings = replace(QUICK, reconnect_s=30.0)
    requests = Requests(f"http://127.0.0.1:{port}", token=None, dev_user=None, timings=timings, random=pauses.draw)

    sending = asyncio.ensure_future(requests.send("POST", "/x", key="k1"))
    await asyncio.wait_for(pauses.enough.wait(), 20)
    async with await asyncio.start_server(refuse, "127.0.0.1", port):
        with pytest.raises(ProblemError):
            await asyncio.wait_for(sending, 20)
    await requests.aclose()

    assert len(refused) == 1


async def test_a_slow_server_after_a_restart_gets_all_attempts() -> None:
    async def answer_third(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer)
        if len(asked) == 3:
            await answer(reader, writer)

    asked: list[asyncio.StreamWriter] = []
    port, pauses = choose_port(), Pauses(6)
    timings = replace(QUICK, reconnect_s=30.0, answer_s=0.05)
    requests = Requests(f"http://127.0.0.1:{port}", token=None, dev_user=None, timings=timings, random=pauses.draw)

    sending = asyncio.ensure_future(requests.send("GET", "/x"))
    await asyncio.wait_for(pauses.enough.wait(), 20)
    async with await asyncio.start_server(answer_third, "127.0.0.1", port):
        body = await asyncio.wait_for(sending, 20)
        for writer in asked:
            writer.close()
    await requests.aclose()

    assert body == b"{}"


async def test_gives_up_in_time_on_a_server_that_stays_down() -> None:
    pauses = Pauses(12)
    requests = Requests(
        f"http://127.0.0.1:{choose_port()}",
        token=None,
        dev_user=None,
        timings=replace(QUICK, reconnect_s=0.3),
        random=pauses.draw,
    )

    with pytest.raises(Unreachable):
        await asyncio.wait_for(requests.send("GET", "/x"), 20)
    await requests.aclose()

    assert pauses.count > QUICK.attempts
