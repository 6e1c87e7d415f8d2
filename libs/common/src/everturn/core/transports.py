"""Writing to a connection or a pipe that may have closed."""

import asyncio
from contextlib import suppress


def abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once, or leave it closed. A transport of asyncio raises AttributeError if it has closed
    after its last bytes were sent: it has no event loop any more."""
    with suppress(AttributeError):
        writer.transport.abort()


class CheckedWriter:
    """A StreamWriter that raises ConnectionResetError if its transport has closed, on every event loop.

    The loop of asyncio does so in `drain`. uvloop raises RuntimeError in `write`.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
        except RuntimeError as error:
            raise ConnectionResetError(f"The connection is closed: {error}") from error

    async def drain(self) -> None:
        await self._writer.drain()
