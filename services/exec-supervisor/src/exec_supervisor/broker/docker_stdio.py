"""A container's attached streams: stdin as bytes, stdout and stderr separated from the engine's combined stream."""

import asyncio
import contextlib
import struct
from typing import Final

STDERR_TAIL_BYTES: Final = 4096
_READ_BYTES: Final = 64 << 10
_HEADER: Final = struct.Struct(">BxxxI")
_STDERR: Final = 2
_STREAMS: Final = frozenset({0, 1, 2})


class StreamMixed(Exception):
    """The engine's stream has an invalid format."""


class Demux:
    """Splits the engine's stream: 8 bytes of header, then that many bytes of one stream. Buffers at most a header.

    `errors` is the end of stderr.
    """

    def __init__(self) -> None:
        self._header = bytearray()
        self._left_bytes = 0
        self._stream = 0
        self.errors = b""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes of stdout in the next piece of the stream, however it is split. Raises StreamMixed."""
        out: list[bytes] = []
        rest = memoryview(data)
        while rest:
            if self._left_bytes == 0:
                rest = self._take_header(rest)
                continue
            piece, rest = rest[: self._left_bytes], rest[self._left_bytes :]
            self._left_bytes -= len(piece)
            if self._stream == _STDERR:
                self.errors = (self.errors + bytes(piece[-STDERR_TAIL_BYTES:]))[-STDERR_TAIL_BYTES:]
            else:
                out.append(bytes(piece))
        return b"".join(out)

    def _take_header(self, rest: memoryview) -> memoryview:
        missing = _HEADER.size - len(self._header)
        self._header += rest[:missing]
        if len(self._header) == _HEADER.size:
            self._stream, self._left_bytes = _HEADER.unpack(self._header)
            self._header.clear()
            if self._stream not in _STREAMS:
                raise StreamMixed(f"it names stream {self._stream}")
        return rest[missing:]


class AttachedStdio:
    """The streams of one attached container, as a `SupervisorLine`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._demux = Demux()

    @property
    def errors(self) -> str:
        return self._demux.errors.decode("utf-8", "replace").strip()

    async def read(self) -> bytes:
        try:
            while data := await self._reader.read(_READ_BYTES):
                if out := self._demux.feed(data):
                    return out
        except (OSError, StreamMixed):
            self.close()
        return b""

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def close_input(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            if self._writer.can_write_eof() and not self._writer.is_closing():
                self._writer.write_eof()

    def close(self) -> None:
        """Detach from the container; the engine then closes its stdin."""
        self._writer.transport.abort()
