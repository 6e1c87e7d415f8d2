"""Carries one connection of a program over the line between supervisor and worker; both ends use it.

Each direction has a window: its sender sends at most `WINDOW_BYTES` that the receiver has not passed on yet. So neither
end buffers more than that for a connection whose reader is slow, and the line is always read. A frame counts as at
least `FRAME_COST_BYTES`: single bytes would keep the receiver busy.

Standard library only.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from everturn.execution.messages import StreamCredit, StreamData, StreamLost, StreamMessage
from everturn.execution.records import BadMessage, MessageClass

WINDOW_BYTES: Final = 256 << 10
CHUNK_BYTES: Final = 32 << 10
FRAME_COST_BYTES: Final = 8 << 10

SendMessage = Callable[[MessageClass], Awaitable[None]]
Direction = Literal["read", "written"]
CountBytes = Callable[[Direction, int, int], Awaitable[None]]
"""Called with the number of bytes that were read from the connection, or are to be written to it, and with their cost:
the number of bytes that a large transfer moves in the time that their frames take. It may wait, or raise OSError to end
the connection."""


def abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once, or leave it closed. A transport of asyncio raises AttributeError if it has closed
    after its last bytes were sent: it has no event loop any more."""
    with contextlib.suppress(AttributeError):
        writer.transport.abort()


async def _count_nothing(direction: Direction, count: int, cost: int) -> None:
    pass


def _with_credit(cost: int) -> int:
    """The cost of data and of the one frame of credit that answers them, which matters for a single small frame."""
    return max(cost, 2 * FRAME_COST_BYTES)


class Relay:
    """One connection and its stream on the line. `run` owns the connection; the reader of the line calls `receive`."""

    def __init__(
        self,
        stream: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        send: SendMessage,
        *,
        count: CountBytes = _count_nothing,
        idle_s: float | None = None,
    ) -> None:
        """`idle_s` is how long the connection can be silent in both directions; None is without a limit."""
        self._stream = stream
        self._reader = reader
        self._writer = writer
        self._send = send
        self._count = count
        self._idle_s = idle_s
        self._credit = WINDOW_BYTES
        self._has_credit = asyncio.Event()
        self._held = bytearray()
        self._held_cost = 0
        self._is_last = False
        self._has_data = asyncio.Event()
        self._is_lost = False

    def receive(self, message: StreamMessage) -> None:
        """Accept a message of the other end; never waits. Raises BadMessage if the other end exceeds its window, or
        gives credit for what it did not get."""
        match message:
            case StreamData(data=data):
                self._held_cost += max(len(data), FRAME_COST_BYTES) if data else 0
                if self._is_last or self._held_cost > WINDOW_BYTES:
                    raise BadMessage(f"stream {self._stream} sends more than its window")
                self._held += data
                self._is_last = not data
                self._has_data.set()
            case StreamCredit(amount=amount):
                if amount < FRAME_COST_BYTES or self._credit + amount > WINDOW_BYTES:
                    raise BadMessage(f"stream {self._stream} gives credit for what it did not get")
                self._credit += amount
                self._has_credit.set()
            case StreamLost():
                self.cut()

    def cut(self) -> None:
        """End the connection at once, in both directions. Can be repeated."""
        self._is_lost = True
        self._has_credit.set()
        self._has_data.set()
        abort(self._writer)

    async def run(self) -> None:
        """Return when both directions have ended, or the connection is lost. Then the other end gets StreamLost."""
        is_broken = False
        try:
            async with asyncio.timeout(self._idle_s) as idle:
                async with asyncio.TaskGroup() as directions:
                    directions.create_task(self._forward(idle))
                    directions.create_task(self._deliver(idle))
                self._writer.close()
                await self._writer.wait_closed()
        except* OSError:  # a timeout is one
            is_broken = True
        finally:
            abort(self._writer)
        if is_broken and not self._is_lost:
            await self._send(StreamLost(self._stream))

    async def _forward(self, idle: asyncio.Timeout) -> None:
        """Send what the connection receives, as far as there is credit."""
        data = b"-"
        while data:
            while self._credit < CHUNK_BYTES and not self._is_lost:
                self._has_credit.clear()
                await self._has_credit.wait()
            data = await self._reader.read(CHUNK_BYTES)
            if self._is_lost:
                raise ConnectionResetError
            self._note_activity(idle)
            if data:
                cost = max(len(data), FRAME_COST_BYTES)
                await self._count("read", len(data), _with_credit(cost))
                self._credit -= cost
            await self._send(StreamData(self._stream, data))

    async def _deliver(self, idle: asyncio.Timeout) -> None:
        """Write what arrives to the connection, and give credit for it."""
        while True:
            await self._has_data.wait()
            self._has_data.clear()
            if self._is_lost:
                raise ConnectionResetError
            data, cost, is_last = bytes(self._held), self._held_cost, self._is_last
            self._held.clear()
            if data:
                await self._count("written", len(data), _with_credit(cost))
                self._write(data)
                await self._writer.drain()
                self._note_activity(idle)
                self._held_cost -= cost
                await self._send(StreamCredit(self._stream, cost))
            if is_last:
                self._write(b"")
                return

    def _write(self, data: bytes) -> None:
        """Write data, or the end if there are none. Raises OSError; uvloop has a RuntimeError for what is closed."""
        try:
            if data:
                self._writer.write(data)
            else:
                self._writer.write_eof()
        except RuntimeError as error:
            raise ConnectionResetError(f"the connection is closed: {error}") from error

    def _note_activity(self, idle: asyncio.Timeout) -> None:
        if self._idle_s is not None and not idle.expired():
            idle.reschedule(asyncio.get_running_loop().time() + self._idle_s)
