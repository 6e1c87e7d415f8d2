"""A TCP proxy that makes a connection slow, silent, broken or wrong, at once for all its connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal

from everturn_local.ports import LOOPBACK, load_free_port

CHUNK_BYTES = 64 * 1024
CONNECT_S = 5.0

Direction = Literal["up", "down"]
"""Up is from the client to the server."""


@dataclass(slots=True)
class Weather:
    """The current state of the link. Changed by its proxy only."""

    delay_s: float = 0.0
    drip_bytes: int = 0
    """Pieces of this size with a pause between them; 0 is as it comes."""
    drip_pause_s: float = 0.0
    refusing: bool = False


@dataclass(slots=True, eq=False)
class _Carried:
    """One connection with both its ends."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter

    def abort(self) -> None:
        for end in (self.client, self.server):
            end.transport.abort()


class FaultProxy:
    """Listens on its own port and forwards every connection to `target`, which can be set later and changed."""

    def __init__(self, target: tuple[str, int] | None = None) -> None:
        self.target = target
        self.port = 0
        self.accepted = 0
        """Connections so far."""
        self._weather = Weather()
        self._flips: dict[Direction, int] = {"up": 0, "down": 0}
        self._expected: dict[bytes, asyncio.Event] = {}
        self._carried: set[_Carried] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def aimed_at(self, target: tuple[str, int] | None) -> Iterator[None]:
        """New connections go there meanwhile, as what balances the load sends them elsewhere."""
        home, self.target = self.target, target
        try:
            yield
        finally:
            self.target = home

    @property
    def open_connections(self) -> int:
        return len(self._carried)

    async def start(self) -> None:
        self.port = load_free_port()
        self._server = await asyncio.start_server(self._accept, LOOPBACK, self.port, limit=CHUNK_BYTES)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def delay(self, delay_s: float) -> None:
        """Delay every piece by this much, in both directions."""
        self._weather.delay_s = delay_s

    def drip(self, piece_bytes: int, pause_s: float) -> None:
        """Send everything in small pieces."""
        self._weather.drip_bytes, self._weather.drip_pause_s = piece_bytes, pause_s

    def silence(self) -> None:
        """Nothing comes through and nobody is notified: both ends believe in a connection that is half open."""
        self._flowing.clear()

    def refuse(self) -> None:
        """Break present connections, and new ones at once."""
        self._weather.refusing = True
        self.cut()

    def cut(self) -> int:
        """Break the present connections with a reset; returns how many there were. New ones are carried."""
        carried = list(self._carried)
        for each in carried:
            each.abort()
        return len(carried)

    def flip(self, direction: Direction, *, pieces: int = 1) -> None:
        """Change one byte in the middle of each of the next pieces."""
        self._flips[direction] += pieces

    def expect(self, words: bytes) -> asyncio.Event:
        """Set once these words are on their way to the server, in one piece."""
        return self._expected.setdefault(words, asyncio.Event())

    def heal(self, *, cut: bool = False) -> None:
        """Forward everything unchanged. Held data is sent now, or with `cut` never."""
        if cut:
            self.cut()
        self._weather = Weather()
        self._flips = {"up": 0, "down": 0}
        self._expected = {}
        self._flowing.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self._weather.refusing or self.target is None:
            writer.transport.abort()
            return
        try:
            async with asyncio.timeout(CONNECT_S):
                answers, server = await asyncio.open_connection(*self.target, limit=CHUNK_BYTES)
        except (OSError, TimeoutError):
            writer.transport.abort()
            return
        carried = _Carried(writer, server)
        self._carried.add(carried)
        try:
            # One end that closes ends the other one too: none of our protocols goes on half closed.
            pumps = {
                asyncio.create_task(self._pump(reader, server, "up")),
                asyncio.create_task(self._pump(answers, writer, "down")),
            }
            await _first_of(pumps)
        finally:
            self._carried.discard(carried)
            for end in (writer, server):
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                async for piece in self._pieces(self._bend(data, direction)):
                    await self._flowing.wait()
                    writer.write(piece)
                    self._notice(piece, direction)
                    await writer.drain()

    def _notice(self, piece: bytes, direction: Direction) -> None:
        if direction == "up":
            for words, gone in self._expected.items():
                if words in piece:
                    gone.set()

    async def _pieces(self, data: bytes) -> AsyncIterator[bytes]:
        if self._weather.delay_s:
            await asyncio.sleep(self._weather.delay_s)
        for piece in _split(data, self._weather.drip_bytes):
            yield piece
            if self._weather.drip_bytes:
                await asyncio.sleep(self._weather.drip_pause_s)

    def _bend(self, data: bytes, direction: Direction) -> bytes:
        if not self._flips[direction]:
            return data
        self._flips[direction] -= 1
        middle = len(data) // 2
        return data[:middle] + bytes([data[middle] ^ 0x20]) + data[middle + 1 :]


def _split(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size or len(data)):
        yield data[start : start + (size or len(data))]


async def _first_of(tasks: set[asyncio.Task[None]]) -> None:
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
