"""The conversations that one socket follows, while calls about them end early."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

from everturn.core.identity import Principal
from ingress.auth.callers import Caller
from ingress.sockets.subscriptions import Subscriptions

CONVERSATION = "conv_01890a5d-ac96-774b-bcce-b302099a8057"


class Line:
    """A connection whose client takes nothing once `stuck` is set."""

    caller = Caller(Principal("t", "p", "ann"))
    closed = False

    def __init__(self) -> None:
        self.stuck = False
        self.waited = asyncio.Event()

    async def wait_sent(self) -> None:
        if self.stuck:
            self.waited.set()
            await asyncio.Event().wait()


class Hub:
    draining = False

    def __init__(self) -> None:
        self.open_clients: list[object] = []

    async def open(self, *_: object) -> object:
        client = object()
        self.open_clients.append(client)
        return client

    def close(self, client: object) -> None:
        self.open_clients.remove(client)


class Feed:
    async def chunks(self, client: object) -> AsyncGenerator[bytes]:
        await asyncio.Event().wait()
        yield b""


async def test_a_call_that_is_cancelled_while_it_replaces_a_feed_leaves_no_second_one() -> None:
    line, hub = Line(), Hub()
    payload: Any = {"conversation_id": CONVERSATION}
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        followed = Subscriptions(cast(Any, line), hub=cast(Any, hub), feed=cast(Any, Feed()), group=group)
        await followed.subscribe(payload)
        first = list(hub.open_clients)
        line.stuck = True
        again = asyncio.create_task(followed.subscribe(payload))
        await line.waited.wait()
        again.cancel()
        await asyncio.wait([again])
        left = list(hub.open_clients)
        followed.end()

    assert left == first
