"""The WebSocket without a Socket.IO client: input that no official client would send."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from helpers.sockets import ROUTE, RawSocket

from ingress.sockets.server import MAX_JOINING_PER_ADDRESS

NO_SUBSCRIPTION = '421["conv_unsubscribe",{"conversation_id":"conv_01890a5d-ac96-774b-bcce-b302099a8057"}]'


@pytest.fixture
async def web(ingress: Any) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(base_url=ingress.url) as session:
        yield session


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (["x"], 1002),
        (["5"], 1002),
        (['431[["no call of ours"]]'], 1002),
        (["40{}"], 1008),
        ([b"no event before"], 1002),
        (['45999-["chat_message"]'], 1009),
        (['451-["chat_message",{"_placeholder":true,"num":0}]', "3"], 1002),
        (["3"] * 200, 1008),
    ],
)
async def test_what_is_no_packet_ends_that_one_socket(
    web: aiohttp.ClientSession, socket: Any, client: Any, frames: list[str | bytes], code: int
) -> None:
    async with web.ws_connect(ROUTE) as opened:
        raw = await RawSocket(opened).join()
        for frame in frames:
            await (raw.socket.send_bytes(frame) if isinstance(frame, bytes) else raw.socket.send_str(frame))
        assert await raw.closed() == code

    assert (await socket.call("conv_status.get", {"conversation_id": "x"}))["status"] == 404
    assert "ingress_unhandled_errors_total 0.0" in (await client.get("/metrics")).text


async def test_a_frame_before_the_connection_is_small(web: aiohttp.ClientSession) -> None:
    async with web.ws_connect(ROUTE) as opened:
        raw = RawSocket(opened)
        await raw.next()
        await raw.socket.send_str("40" + "x" * 70_000)
        assert await raw.closed() == 1009


async def test_files_above_the_cap_are_refused_and_the_socket_stays_open(web: aiohttp.ClientSession) -> None:
    places = ",".join(f'{{"_placeholder":true,"num":{n}}}' for n in range(21))
    async with web.ws_connect(ROUTE) as opened:
        raw = await RawSocket(opened).join()
        await raw.socket.send_str(f'4521-5["chat_message",{places}]')
        for _ in range(21):
            await raw.socket.send_bytes(b"x")
        await raw.socket.send_str(NO_SUBSCRIPTION)
        assert (await raw.next()).startswith('435[{"status":413')
        assert (await raw.next()).startswith('431[{"status":404')


@pytest.mark.parametrize(
    "query", ["EIO=4&transport=polling", "EIO=3&transport=websocket", "EIO=4&transport=websocket&sid=x"]
)
async def test_other_transports_and_versions_are_refused_with_a_problem(
    web: aiohttp.ClientSession, refused: Any, client: Any, query: str
) -> None:
    refused(await client.get(f"/socket.io/?{query}"), 400)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
        await web.ws_connect(f"/socket.io/?{query}")

    assert refusal.value.status == 400


async def test_other_websockets_and_large_headers_are_refused(web: aiohttp.ClientSession) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as elsewhere:
        await web.ws_connect("/elsewhere")
    with pytest.raises(aiohttp.WSServerHandshakeError) as large:
        await web.ws_connect(ROUTE, headers={"x-large": "x" * 40_000})

    assert (elsewhere.value.status, large.value.status) == (404, 431)


async def test_an_address_has_a_share_of_the_sockets_that_are_joining(start_ingress: Any) -> None:
    ingress = start_ingress()
    elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
    async with (
        aiohttp.ClientSession(base_url=ingress.url, connector=aiohttp.TCPConnector(limit=0)) as here,
        aiohttp.ClientSession(base_url=ingress.url, connector=elsewhere) as there,
        AsyncExitStack() as stack,
    ):
        joining = [await stack.enter_async_context(here.ws_connect(ROUTE)) for _ in range(MAX_JOINING_PER_ADDRESS)]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await here.ws_connect(ROUTE)
        async with there.ws_connect(ROUTE) as other:
            await RawSocket(other).join()
        await RawSocket(joining[-1]).join()
        async with here.ws_connect(ROUTE) as after:
            await RawSocket(after).join()

    assert refused.value.status == 429
