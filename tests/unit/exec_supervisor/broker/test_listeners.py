"""Connections of a broker: as many as it serves, and none after its end."""

import asyncio
from typing import Any, cast

from exec_supervisor.broker.listeners import open_connections


class Writer:
    """A connection that records whether it was aborted."""

    def __init__(self) -> None:
        self.transport = self
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


async def serve_for_ever(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_more_connections_than_are_served_are_closed_at_once() -> None:
    first, second = Writer(), Writer()

    async with open_connections(serve_for_ever, 1) as accept:
        for writer in (first, second):
            accept(cast(Any, None), cast(Any, writer))

        assert (first.aborted, second.aborted) == (False, True)


async def test_a_connection_that_is_ready_only_after_the_end_is_closed() -> None:
    async with open_connections(serve_for_ever, 1) as accept:
        pass
    late = Writer()

    accept(cast(Any, None), cast(Any, late))

    assert late.aborted
