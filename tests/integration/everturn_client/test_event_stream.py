"""One conversation's events over unreliable connections."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx2
import pytest

from everturn.events.cursor import ORIGIN
from everturn.events.model import ConvStatus, Envelope, Ready, encode_envelope, event_name
from everturn.timeline.blocks import CompletionBody
from everturn.timeline.turns import Outcome
from everturn_client.backoff import Timings
from everturn_client.errors import ProblemError, TooMuch, Unreachable
from everturn_client.event_stream import EventStream
from everturn_testing.events.scenarios import Scenario

if TYPE_CHECKING:
    from tests.integration.everturn_client.conftest import SmallServer

QUICK = Timings(first_delay_s=0.001, max_delay_s=0.01, give_up_s=5, silence_s=5)


def publish_turn(scenario: Scenario) -> None:
    scenario.start_turn("Hi")
    scenario.start_round()
    answer = scenario.stream("answer", 0, [f"word {n} " for n in range(30)])
    scenario.add(CompletionBody(text=answer))
    scenario.end_turn(Outcome.COMPLETED)


class CrowdedPool(httpx2.AsyncHTTPTransport):
    """A transport without a free connection for the requests with these numbers."""

    def __init__(self, *full: int) -> None:
        super().__init__()
        self.asked = 0
        self._full = full

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        if self.asked in self._full:
            raise httpx2.PoolTimeout("full", request=request)
        return await super().handle_async_request(request)


async def read_ids(
    server: "SmallServer",
    after: str | None,
    *,
    timings: Timings = QUICK,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> list[str]:
    """The ids of all events up to the status `idle` of the conversation."""
    path = f"/conversations/default/default/{server.scenario.conversation.id}/events"
    ids: list[str] = []
    async with (
        httpx2.AsyncClient(base_url=server.url, transport=transport) as http,
        aclosing(EventStream(http, path, after=after, timings=timings, random=lambda: 0.5).run()) as envelopes,
    ):
        async for envelope in envelopes:
            if envelope.id:
                ids.append(envelope.id)
            if isinstance(envelope.data, ConvStatus) and envelope.data.state == "idle":
                return ids
    raise AssertionError("the stream ended")


def ids_of(events: list[Envelope]) -> list[str]:
    return [event.id for event in events if event.id]


@pytest.mark.parametrize("seed", range(5))
async def test_cut_connections_lose_and_duplicate_nothing(server: "SmallServer", seed: int) -> None:
    publish_turn(server.scenario)
    cuts = random.Random(seed)
    server.stream_faults = [f"bytes:{cuts.randrange(2500)}" for _ in range(25)]

    ids = await read_ids(server, "0-0")

    assert ids == ids_of(server.scenario.events)
    assert len(server.sent("/events")) > 3


async def test_a_stream_resumes_after_its_last_event(server: "SmallServer") -> None:
    publish_turn(server.scenario)
    server.stream_faults = ["bytes:1500"]

    await read_ids(server, "0-0")

    resumed = [headers["last-event-id"] for headers in server.sent("/events")]
    assert resumed[0] == "0-0"
    assert resumed[1] in ids_of(server.scenario.events)


async def test_without_a_cursor_resumes_from_the_snapshot(server: "SmallServer") -> None:
    publish_turn(server.scenario)
    server.snapshot_page = 0
    server.stream_faults = ["bytes:1400"]

    await read_ids(server, None)

    resumed = [headers.get("last-event-id") for headers in server.sent("/events")]
    assert resumed[0] is None
    assert resumed[1] is None or resumed[1] >= str(server.scenario.pages[0].cursor)


async def test_resumes_from_a_snapshot_before_the_first_event(server: "SmallServer") -> None:
    publish_turn(server.scenario)
    server.snapshot_page = 0
    server.scenario.pages[0] = replace(server.scenario.pages[0], cursor=ORIGIN)
    server.stream_faults = [f"bytes:{cut}" for cut in range(300, 2_400, 150)]

    await read_ids(server, None)

    asked = [headers.get("last-event-id") for headers in server.sent("/events")]
    assert asked[0] is None
    assert "0-0" in asked


async def test_reconnects_after_a_shutdown_at_the_announced_time(server: "SmallServer") -> None:
    publish_turn(server.scenario)
    server.stream_faults = ["shutdown", "shutdown"]
    begin = asyncio.get_running_loop().time()

    ids = await read_ids(server, "0-0")

    assert ids == ids_of(server.scenario.events)
    assert asyncio.get_running_loop().time() - begin >= 0.04


@pytest.mark.parametrize("status", [401, 404])
async def test_permanent_errors_are_raised(server: "SmallServer", status: int) -> None:
    server.stream_faults = [status]

    with pytest.raises(ProblemError) as raised:
        await read_ids(server, "0-0")

    assert raised.value.problem.status == status
    assert len(server.sent("/events")) == 1


async def test_a_busy_server_is_retried(server: "SmallServer") -> None:
    publish_turn(server.scenario)
    server.stream_faults = [503, 429, 500]

    ids = await read_ids(server, "0-0")

    assert ids == ids_of(server.scenario.events)


async def test_a_silent_connection_is_replaced(server: "SmallServer") -> None:
    publish_turn(server.scenario)
    held = server.scenario.events.pop()
    silent = Timings(first_delay_s=0.001, max_delay_s=0.01, silence_s=0.1, give_up_s=10)

    reading = asyncio.ensure_future(read_ids(server, "0-0", timings=silent))
    await server.wait_for("GET", "/events", count=2)
    server.scenario.events.append(held)
    await server.publish()

    assert (await asyncio.wait_for(reading, 10))[-1] == held.id


async def test_gives_up_on_a_server_that_stays_down() -> None:
    gone = Timings(first_delay_s=0.001, max_delay_s=0.01, give_up_s=0.05)

    async with httpx2.AsyncClient(base_url="http://127.0.0.1:9") as http:
        with pytest.raises(Unreachable):
            await anext(EventStream(http, "/x", timings=gone).run())


async def test_a_reconnect_waits_for_a_free_connection(server: "SmallServer") -> None:
    publish_turn(server.scenario)
    server.stream_faults = ["bytes:600"]
    crowded = CrowdedPool(2, 3)

    ids = await read_ids(server, str(ORIGIN), transport=crowded)

    assert ids == ids_of(server.scenario.events)
    assert crowded.asked == 4


async def test_a_new_stream_without_a_free_connection_raises(server: "SmallServer") -> None:
    publish_turn(server.scenario)

    with pytest.raises(TooMuch, match="allow more"):
        await read_ids(server, None, transport=CrowdedPool(1))


class Bodies(httpx2.AsyncBaseTransport):
    """One body of a stream per request; afterwards nothing can be reached."""

    def __init__(self, *bodies: AsyncIterator[bytes], content_type: str = "text/event-stream") -> None:
        self.asked = 0
        self._bodies = list(bodies)
        self._content_type = content_type

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        if not self._bodies:
            raise httpx2.ConnectError("gone", request=request)
        return httpx2.Response(200, headers={"content-type": self._content_type}, content=self._bodies.pop(0))

    async def read_first(self, timings: Timings = QUICK) -> Envelope:
        async with (
            httpx2.AsyncClient(base_url="http://test", transport=self) as http,
            aclosing(EventStream(http, "/x", timings=timings, random=lambda: 0.5).run()) as envelopes,
        ):
            return await anext(envelopes)


async def send(*parts: bytes | float) -> AsyncIterator[bytes]:
    """Numbers are seconds to wait."""
    for part in parts:
        if isinstance(part, bytes):
            yield part
        else:
            await asyncio.sleep(part)


def build_ready() -> bytes:
    ready = Envelope(type="ready", ts="", conversation_id="conv_gr\u00fc\u00df", data=Ready(cursor=None))
    return f"event: {event_name('ready')}\ndata: ".encode() + encode_envelope(ready) + b"\n\n"


READY = build_ready()


async def test_bytes_may_be_cut_anywhere_and_begin_with_a_byte_order_mark() -> None:
    pieces = [bytes([byte]) for byte in b"\xef\xbb\xbf" + READY.replace(b"\n", b"\r\n")]

    first = await Bodies(send(*pieces), content_type="text/event-stream; charset=latin-1").read_first()

    assert first.conversation_id == "conv_gr\u00fc\u00df"


async def test_events_without_data_unknown_events_and_comments_are_skipped() -> None:
    skipped = b": heartbeat\n\nid: 1-2\n\nevent: ready\n\nretry: -5\nretry: x\n\nevent: new\ndata: \xff\n\n"

    first = await Bodies(send(skipped, READY)).read_first()

    assert first.type == "ready"


async def test_heartbeats_keep_a_stream_that_has_no_events_alive() -> None:
    timings = Timings(first_delay_s=0.001, max_delay_s=0.01, give_up_s=0.3)
    quiet = [part for _ in range(8) for part in (b": heartbeat\n\n", 0.1)]

    first = await Bodies(send(*quiet), send(READY)).read_first(timings)

    assert first.type == "ready"


@pytest.mark.parametrize("end", [b"", b"\n"], ids=["one line", "many lines"])
async def test_an_event_that_does_not_end_is_refused(end: bytes) -> None:
    endless = Bodies(send(b"event: ready\n", *[b"data: " + b"x" * 1_000_000 + end] * 50))

    with pytest.raises(TooMuch, match="33554432 bytes"):
        await endless.read_first()

    assert endless.asked == 1


async def test_a_page_of_a_proxy_is_no_stream_and_is_retried_until_the_limit() -> None:
    pages = Bodies(*(send(b"<p>Back soon") for _ in range(3)), content_type="text/html")

    with pytest.raises(Unreachable):
        await pages.read_first(Timings(first_delay_s=0.001, max_delay_s=0.01, give_up_s=0.3))

    assert pages.asked > 3
