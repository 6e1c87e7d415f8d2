"""The WebSocket protocol of this process: the server's own, with bounds on the memory that a client can use."""

import logging
from typing import Any, Protocol, cast

from starlette.types import Message, Scope
from uvicorn.protocols.websockets.wsproto_impl import FrameTooLargeError, WebsocketBuffer, WSProtocol
from wsproto.connection import ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Ping, Request, TextMessage

from ingress.admission.limits import BodyHold
from ingress.errors import ProblemError

FIRST_MAX_BYTES = 65_536
"""The largest message before the application has authenticated the client."""
MAX_WAITING_FRAMES = 2048
"""Received frames that were not processed yet: more than the calls of one burst with all their attachments."""
START_CHARS = 256
"""How much of a message without room is kept, so that the answer can be matched to its call."""
COUNTED_KEY, REFUSAL_KEY = "everturn.counted", "everturn.refusal"
_KEY = "everturn.line"


class Line(Protocol):
    """The connection below a WebSocket."""

    def allow(self, max_bytes: int, hold: BodyHold) -> None:
        """From now on accept messages of up to `max_bytes`, which `hold` counts as they arrive."""
        ...

    @property
    def begun_at(self) -> float | None:
        """The loop time at which the incomplete message began; None if there is none."""
        ...

    async def wait_sent(self) -> None:
        """Wait until the client has received all but a few kilobytes of what was sent, or is gone."""
        ...

    def abort(self) -> None:
        """Abort the connection and discard unsent data."""
        ...


class BoundedWebSocket(WSProtocol):
    """Accepts small messages until the application allows larger ones, and answers pings only if the client reads.

    COUNTED_KEY of a message is the number of its bytes that are counted. A message without room is dropped as it
    arrives: only its start is delivered, with the reason under REFUSAL_KEY.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # It would log each connection with its query string.
        self.logger = logging.getLogger("everturn.websocket")
        self.logger.setLevel(logging.WARNING)
        self.buffer.max_length = FIRST_MAX_BYTES
        self._hold: BodyHold | None = None
        self._counted = 0
        self._start: str | bytes = ""
        self._refusal: ProblemError | None = None
        self._begun_at: float | None = None

    @property
    def begun_at(self) -> float | None:
        return self._begun_at

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        cast(dict[str, Any], self.scope)[_KEY] = self

    def handle_message(self, event: TextMessage | BytesMessage) -> None:
        """Replaces the base class's method, which keeps messages that have no room, and any number of them."""
        if self.close_sent:
            return  # frames that arrived together with the one that ended the connection
        self._begun_at = self._begun_at or self.loop.time()
        try:
            self._take(event)
        except FrameTooLargeError:
            self._give_up(1009, f"A message can have at most {self.buffer.max_length} bytes.")
            return
        if self.queue.qsize() >= MAX_WAITING_FRAMES:
            self._give_up(1008, "Too many frames at once.")
        elif event.message_finished:
            self._hand_over()

    def _take(self, event: TextMessage | BytesMessage) -> None:
        """Keep and count a piece of a message; without room for it, drop the whole message."""
        before = self.buffer.length
        self.buffer.extend(event)
        if self._refusal is None:
            try:
                self._count(self.buffer.length - before)
            except ProblemError as refusal:
                self._refusal = refusal
                self._start = _read_start(self.buffer)
                self._uncount()
        if self._refusal is not None:
            self.buffer.value = None  # its length keeps growing, so that the size limit still applies

    def _count(self, count: int) -> None:
        if self._hold is not None:
            self._hold.grow(count)
            self._counted += count

    def _hand_over(self) -> None:
        if self._refusal is None:
            message: Message = {**self.buffer.to_message()}
        else:
            kind = "text" if isinstance(self._start, str) else "bytes"
            message = {"type": "websocket.receive", kind: self._start, REFUSAL_KEY: self._refusal}
        # From here on the application counts these bytes down.
        message[COUNTED_KEY], self._counted = self._counted, 0
        self._forget()
        self.queue.put_nowait(cast(Any, message))
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def _forget(self) -> None:
        """Reset the state after a message was handed over or abandoned."""
        self._uncount()
        self.buffer.clear()
        self._start, self._refusal, self._begun_at = "", None, None

    def _uncount(self) -> None:
        if self._hold is not None:
            self._hold.shrink(self._counted)
        self._counted = 0

    def _give_up(self, code: int, reason: str) -> None:
        self._forget()
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        if not self.transport.is_closing():
            self.transport.write(self.conn.send(CloseConnection(code=code, reason=reason)))
            self.transport.close()

    def handle_close(self, event: CloseConnection) -> None:
        """Send a close frame for invalid frames or text that is not UTF-8; the base class only disconnects."""
        if self.conn.state is ConnectionState.OPEN and not self.close_sent:
            self._give_up(event.code, event.reason or "")
        else:
            super().handle_close(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def handle_ping(self, event: Ping) -> None:
        # A client that sends pings and never reads would fill the memory with pongs.
        if self.writable.is_set():
            super().handle_ping(event)

    def allow(self, max_bytes: int, hold: BodyHold) -> None:
        self.buffer.max_length = max_bytes
        self._hold = hold

    async def wait_sent(self) -> None:
        await self.writable.wait()

    def abort(self) -> None:
        self.transport.abort()


def _read_start(buffer: WebsocketBuffer) -> str | bytes:
    if buffer.value is None:
        return b""
    buffer.value.seek(0)
    return buffer.value.read(START_CHARS)


def load_line(scope: Scope) -> Line:
    """The connection of a WebSocket scope that this process serves."""
    return cast(Line, scope[_KEY])
