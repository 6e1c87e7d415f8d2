"""A server that nothing on the page may reach: it records every visit, over TCP and over UDP."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from everturn_local.ports import LOOPBACK

VISIT_S = 10.0


class ForbiddenServer:
    """An async context manager. `visits` are the first words of each connection, and each datagram."""

    def __init__(self) -> None:
        self.visits: list[str] = []
        self.port = 0
        self._tcp: asyncio.Server | None = None
        self._udp: asyncio.DatagramTransport | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    async def __aenter__(self) -> Self:
        self._tcp = await asyncio.start_server(self._greet, LOOPBACK, 0)
        self.port = self._tcp.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        self._udp, _ = await loop.create_datagram_endpoint(lambda: _Ear(self), (LOOPBACK, self.port))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._udp is not None:
            self._udp.close()
        if self._tcp is not None:
            self._tcp.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = len(self.visits)
        self.visits.append("connected")
        with contextlib.suppress(ConnectionError):
            self.visits[place] = repr(await reader.read(200))
        writer.close()


class _Ear(asyncio.DatagramProtocol):
    def __init__(self, stranger: ForbiddenServer) -> None:
        self._stranger = stranger

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._stranger.visits.append(f"datagram {data!r}")


async def visit(stranger: ForbiddenServer) -> None:
    """Come over both ways, and wait until both were counted."""
    before = len(stranger.visits)
    _, writer = await asyncio.open_connection(LOOPBACK, stranger.port)
    writer.close()
    loop = asyncio.get_running_loop()
    sender, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=(LOOPBACK, stranger.port))
    sender.sendto(b"hello")
    async with asyncio.timeout(VISIT_S):
        while len(stranger.visits) < before + 2:  # noqa: ASYNC110 - the list is no event
            await asyncio.sleep(0.01)
    sender.close()
