"""The proxy itself: each fault does what its name says, and none of it persists."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from faults.proxy import FaultProxy

LIMIT_S = 5.0


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1024):
        writer.write(data)
    writer.close()


@pytest_asyncio.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    """In front of a server that records everything and echoes it."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    made = FaultProxy(("127.0.0.1", server.sockets[0].getsockname()[1]))
    await made.start()
    yield made
    await made.stop()
    server.close()


async def connect(proxy: FaultProxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def ask(ends: tuple[asyncio.StreamReader, asyncio.StreamWriter], text: bytes) -> bytes:
    reader, writer = ends
    writer.write(text)
    async with asyncio.timeout(LIMIT_S):
        return await reader.readexactly(len(text))


async def test_a_working_link_forwards_data(proxy: FaultProxy):
    ends = await connect(proxy)

    assert await ask(ends, b"hello") == b"hello"
    ends[1].close()


async def test_a_link_notices_expected_bytes_sent_to_the_server(proxy: FaultProxy):
    ends = await connect(proxy)
    expected, other = proxy.expect(b"file"), proxy.expect(b"nothing")

    await ask(ends, b"hello")
    assert not expected.is_set()
    await ask(ends, b"a file of hello")

    assert (expected.is_set(), other.is_set()) == (True, False)
    ends[1].close()


async def test_data_held_by_a_silent_link_arrives_when_healed(proxy: FaultProxy):
    ends = await connect(proxy)
    proxy.silence()

    asked = asyncio.create_task(ask(ends, b"hello"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(asked), 0.1)
    proxy.heal()

    assert await asked == b"hello"
    ends[1].close()


async def test_a_cut_breaks_present_connections_only(proxy: FaultProxy):
    ends = await connect(proxy)
    await ask(ends, b"hello")

    assert proxy.cut() == 1

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await ask(ends, b"more")
    later = await connect(proxy)
    assert await ask(later, b"again") == b"again"
    later[1].close()


async def test_a_refusing_link_lets_nobody_in_until_it_is_healed(proxy: FaultProxy):
    proxy.refuse()

    refused = await connect(proxy)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await ask(refused, b"hello")
    proxy.heal()
    ends = await connect(proxy)

    assert await ask(ends, b"hello") == b"hello"
    ends[1].close()


async def test_a_flipped_byte_is_one_byte_of_one_piece(proxy: FaultProxy):
    ends = await connect(proxy)
    proxy.flip("up")

    assert await ask(ends, b"abc") == b"aBc"
    assert await ask(ends, b"abc") == b"abc"
    ends[1].close()


async def test_a_slow_link_loses_nothing(proxy: FaultProxy):
    ends = await connect(proxy)
    proxy.drip(3, 0.001)

    assert await ask(ends, b"piece by piece") == b"piece by piece"
    ends[1].close()
