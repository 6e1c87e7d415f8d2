"""One HTTP/1.1 connection of an agent, over a pair of streams. What it sends is untrusted."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import h11

from everturn.execution.streams import abort

MAX_HEAD_BYTES: Final = 64 * 1024
"""Of a request line and its headers. What one read brings more is not noticed."""
READ_BYTES: Final = 64 * 1024
LINGER_S: Final = 1.0
"""How long the rest of a request is read and dropped after its answer: a connection that is closed with unread bytes
can lose the answer."""


class ClientGone(Exception):
    """The agent has closed its connection."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request. Names of headers are in lower case; of a repeated header, the last one counts."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]


class Connection:
    """Reads requests and sends their answers, one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._ahead = b""
        """What was read while a request was being answered: the beginning of the next one."""
        self._is_head = False
        # Then `drain` returns only when the kernel has everything, and closing loses nothing of it.
        writer.transport.set_write_buffer_limits(0)

    @property
    def has_answered(self) -> bool:
        """Whether the head of the answer was sent."""
        return self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE)

    @property
    def is_read(self) -> bool:
        """Whether the request was read to its end."""
        return self._http.their_state in (h11.DONE, h11.MUST_CLOSE)

    async def read_head(self, timeout_s: float) -> RequestHead | None:
        """The next request; None at the end of the connection. Raises h11.RemoteProtocolError for what is no request,
        ClientGone, and TimeoutError."""
        async with asyncio.timeout(timeout_s):
            event = await self._read_event()
        if not isinstance(event, h11.Request):
            return None
        self._is_head = event.method == b"HEAD"
        path, _, query = event.target.decode("ascii", "replace").partition("?")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers}
        return RequestHead(event.method.decode("ascii"), path, query, headers)

    async def read_body(self, timeout_s: float, note: Callable[[int], None]) -> list[bytes]:
        """The body in pieces. `note` is called with the bytes of each, and can raise. Raises h11.RemoteProtocolError,
        ClientGone, and TimeoutError."""
        pieces: list[bytes] = []
        async with asyncio.timeout(timeout_s):
            while isinstance(event := await self._read_event(), h11.Data):
                note(len(event.data))
                pieces.append(bytes(event.data))
        return pieces

    async def wait_gone(self) -> None:
        """Return when the agent has closed its end, while its request is being answered. HTTP clients don't close one
        direction only."""
        if not self._ahead:
            with contextlib.suppress(OSError):  # a lost connection is closed, too
                self._ahead = await self._reader.read(READ_BYTES)
        if self._ahead:
            await asyncio.Event().wait()

    async def begin_answer(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head of an answer whose body follows in pieces. Raises ClientGone."""
        await self._send(h11.Response(status_code=status, headers=list(headers.items())))

    async def send_piece(self, piece: bytes) -> None:
        """Send a piece of the body, and wait while the agent reads more slowly. Raises ClientGone."""
        if piece and not self._is_head:
            await self._send(h11.Data(data=piece))

    async def end_answer(self) -> None:
        """Raises ClientGone."""
        await self._send(h11.EndOfMessage())

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a whole answer. Raises ClientGone."""
        closes = {} if self.is_read else {"Connection": "close"}
        await self.begin_answer(status, {**headers, **closes, "Content-Length": str(len(body))})
        await self.send_piece(body)
        await self.end_answer()

    def try_begin_next(self) -> bool:
        """Whether another request can follow."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def close(self) -> None:
        """Close the connection after what was sent. An answer without its end stays without it."""
        try:
            # Whatever goes wrong now, nobody reads or writes any more.
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                async with asyncio.timeout(LINGER_S):
                    self._writer.write_eof()
                    while await self._reader.read(READ_BYTES):
                        pass
        finally:
            abort(self._writer)

    async def _read_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            data, self._ahead = self._ahead, b""
            try:
                self._http.receive_data(data or await self._reader.read(READ_BYTES))
            except OSError as error:
                raise ClientGone from error
        return event

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        try:
            if data:
                self._writer.write(data)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:  # uvloop has a RuntimeError for what is closed
            raise ClientGone from error
