"""Opening the wire needs no server; closing it leaves no connection."""

from everturn.redis.calls import build_client
from everturn.redis.wire import open_wire


async def test_closing_leaves_no_connection(redis_url: str) -> None:
    watcher = build_client(redis_url, name="watch")

    async with open_wire(redis_url, name="short-lived") as wire:
        await wire.doorbells.check()
        assert "short-lived" in [one["name"] for one in await watcher.client_list()]

    assert "short-lived" not in [one["name"] for one in await watcher.client_list()]
    await watcher.aclose()
    await watcher.connection_pool.disconnect()


async def test_opening_needs_no_server() -> None:
    async with open_wire("redis://127.0.0.1:1/0", name="test") as wire:
        assert wire.doorbells is not None
