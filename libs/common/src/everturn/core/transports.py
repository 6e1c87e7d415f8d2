"""Writing to a connection or a pipe that may have closed."""

import asyncio


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
