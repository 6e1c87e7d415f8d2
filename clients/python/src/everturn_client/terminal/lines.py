"""Reading typed lines without blocking the event loop."""

import asyncio
import os
from types import TracebackType
from typing import Self

MAX_PENDING_LINES = 100
MAX_LINE_BYTES = 1024 * 1024
_READ_BYTES = 65536


class LineReader:
    """Reads lines from a file descriptor while it is entered. Reading pauses while too many lines wait."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._is_reading = False

    def __enter__(self) -> Self:
        self._resume()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pause()

    async def next(self) -> str | None:
        """The next line without its line end; None at the end of input."""
        line = await self._lines.get()
        if line is None:
            self._lines.put_nowait(None)
        elif self._lines.qsize() < MAX_PENDING_LINES:
            self._resume()
        return line

    def _resume(self) -> None:
        if not self._is_reading:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)
            self._is_reading = True

    def _pause(self) -> None:
        if self._is_reading:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._is_reading = False

    def _read(self) -> None:
        try:
            read = os.read(self._descriptor, _READ_BYTES)
        except OSError:
            # A terminal that was closed reads as an error, not as an end.
            read = b""
        *whole, self._buffer = (self._buffer + read).split(b"\n")
        if (not read and self._buffer) or len(self._buffer) > MAX_LINE_BYTES:
            whole.append(self._buffer)
            self._buffer = b""
        for line in whole:
            self._lines.put_nowait(line.decode("utf-8", errors="replace").rstrip("\r"))
        if not read:
            self._lines.put_nowait(None)
        if not read or self._lines.qsize() >= MAX_PENDING_LINES:
            self._pause()
