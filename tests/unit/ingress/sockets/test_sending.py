"""Sending to a client: it waits for a client that does not read, and a feed is never doubled."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from helpers.websockets import FakeWebSocket

from everturn.core.identity import Principal
from ingress.auth.callers import Caller
from ingress.metrics import IngressMetrics
from ingress.sockets.sending import Outlet, Subscriptions
from ingress.stream.feed import MIN_BYTES_PER_S

CONVERSATION = "conv_01890a5d-ac96-774b-bcce-b302099a8057"


def open_outlet(*, timeout_s: float = 60) -> tuple[FakeWebSocket, Outlet]:
    websocket = FakeWebSocket()
    return websocket, Outlet(websocket.send, cast(Any, websocket), metrics=IngressMetrics(), timeout_s=timeout_s)


async def test_a_client_that_takes_nothing_for_the_time_that_is_set_is_cut_off() -> None:
    websocket, outlet = open_outlet(timeout_s=0.01)
    websocket.writable.clear()

    async with asyncio.timeout(10):
        with pytest.raises(ConnectionAbortedError, match="does not read its data"):
            await outlet.write("42[]")

    assert websocket.aborted.is_set()


async def test_a_frame_that_waits_behind_a_slow_one_has_its_own_time() -> None:
    websocket, outlet = open_outlet(timeout_s=0.3)
    websocket.writable.clear()

    sending = [asyncio.create_task(outlet.write(frame)) for frame in ("42[1]", "42[2]")]
    for _ in sending:
        await asyncio.sleep(0.2)
        websocket.writable.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        websocket.writable.clear()
    websocket.writable.set()
    await asyncio.wait_for(asyncio.gather(*sending), 10)

    assert websocket.texts() == ["42[1]", "42[2]"]
    assert not websocket.aborted.is_set()


async def test_a_large_frame_has_the_time_that_a_slow_client_needs() -> None:
    websocket, outlet = open_outlet(timeout_s=0.01)
    websocket.writable.clear()

    sending = asyncio.create_task(outlet.write("x" * MIN_BYTES_PER_S * 10))
    await asyncio.sleep(0.2)
    websocket.writable.set()
    await asyncio.wait_for(sending, 10)

    assert not websocket.aborted.is_set()


async def test_what_is_sent_counts_as_sent_once_the_client_has_taken_it() -> None:
    websocket, outlet = open_outlet()
    websocket.writable.clear()

    sending = asyncio.create_task(outlet.write("42[1]", "42[2]"))
    await asyncio.wait([sending], timeout=0.05)
    early = (sending.done(), websocket.texts())
    websocket.writable.set()
    await asyncio.wait_for(sending, 10)

    assert early == (False, ["42[1]"])
    assert websocket.texts() == ["42[1]", "42[2]"]


async def test_a_slow_client_delays_only_itself_and_is_disconnected() -> None:
    websocket, outlet = open_outlet()
    websocket.writable.clear()

    feeding = asyncio.create_task(outlet.write_events(["42[1]", "42[2]"]))
    await asyncio.sleep(0)
    await asyncio.wait_for(outlet.close(1012, "bye", "42[3]"), 20)

    assert websocket.aborted.is_set()
    assert websocket.texts() == ["42[1]"]
    with pytest.raises(OSError, match="closed"):
        await asyncio.wait_for(feeding, 20)


async def test_nothing_is_written_to_a_closed_socket() -> None:
    websocket, outlet = open_outlet()

    await outlet.close(1000, "bye")
    await outlet.close(1008, "again")

    with pytest.raises(OSError, match="closed"):
        await outlet.write("42[]")
    assert [message.get("code") for message in websocket.sent] == [1000]


class Streams:
    """A hub whose feeds never have an event."""

    draining = False

    def __init__(self) -> None:
        self.open_clients: list[object] = []
        self.hub = self.feed = self

    async def open(self, *_: object) -> object:
        client = object()
        self.open_clients.append(client)
        return client

    def close(self, client: object) -> None:
        self.open_clients.remove(client)

    async def chunks(self, client: object) -> AsyncGenerator[bytes]:
        await asyncio.Event().wait()
        yield b""


async def test_a_call_cancelled_while_it_replaces_a_feed_leaves_no_second_one() -> None:
    (websocket, outlet), streams = open_outlet(), Streams()
    caller, payload = Caller(Principal("t", "p", "ann")), {"conversation_id": CONVERSATION}
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        followed = Subscriptions(outlet, cast(Any, streams), group)
        await followed.subscribe(caller, payload)
        first = list(streams.open_clients)
        websocket.writable.clear()
        again = asyncio.create_task(followed.subscribe(caller, payload))
        await asyncio.sleep(0.01)
        again.cancel()
        await asyncio.wait([again])
        left = list(streams.open_clients)
        for feed in followed.tasks:
            feed.cancel()

    assert left == first


async def test_a_feed_that_is_cancelled_before_it_runs_leaves_no_client() -> None:
    (_, outlet), streams = open_outlet(), Streams()
    caller, payload = Caller(Principal("t", "p", "ann")), {"conversation_id": CONVERSATION}
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        followed = Subscriptions(outlet, cast(Any, streams), group)
        await followed.subscribe(caller, payload)
        for feed in followed.tasks:
            feed.cancel()
    await asyncio.sleep(0)

    assert streams.open_clients == []
    assert followed.tasks == []
