"""The WebSocket protocol of this process: the server's own, with bounds on the memory that a client can use."""

import logging
from io import BytesIO, StringIO
from typing import Any, cast

from starlette.types import Message, Scope
from uvicorn.protocols.websockets.wsproto_impl import FrameTooLargeError, WSProtocol
from wsproto.connection import ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Ping, Request, TextMessage

from ingress.admission.limits import BodyHold
from ingress.errors import ProblemError

FIRST_MAX_BYTES = 65_536
"""The largest message before the application has authenticated the client."""
MAX_WAITING_FRAMES = 2048
"""Received frames that were not processed yet: more than the calls of one burst with all their attachments. The server
stops reading after a frame, but one read can contain tens of thousands of small ones."""
START_CHARS = 256
"""How much of a message without room is kept, so that the answer can be matched to its call."""
SIZE_KEY, REFUSAL_KEY = "everturn.size", "everturn.refusal"
_KEY = "everturn.websocket"


class BoundedWebSocket(WSProtocol):
    """Accepts small messages until the application allows larger ones, and answers pings only if the client reads.

    After `allow` the bytes of messages are counted as they arrive. SIZE_KEY of a message is the number of its counted
    bytes, which the application subtracts. A message without room is dropped as it arrives: only its start is
    delivered, with the reason under REFUSAL_KEY.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # It would log each connection with its query string.
        self.logger = logging.getLogger("everturn.websocket")
        self.logger.setLevel(logging.WARNING)
        self.buffer.max_length = FIRST_MAX_BYTES
        self._hold: BodyHold | None = None
        self._counted = 0
        self._begun_at: float | None = None  # of the incomplete message, in loop time
        self._start: Message | None = None  # of a message without room

    def allow(self, max_bytes: int, hold: BodyHold) -> None:
        """From now on accept messages of up to `max_bytes`, which `hold` counts as they arrive."""
        self.buffer.max_length = max_bytes
        self._hold = hold

    @property
    def receiving_s(self) -> float:
        """Seconds since the incomplete message began; 0 if there is none."""
        return self.loop.time() - self._begun_at if self._begun_at is not None else 0.0

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        cast(dict[str, Any], self.scope)[_KEY] = self

    def handle_message(self, event: TextMessage | BytesMessage) -> None:
        """Replaces the base class's method, which keeps messages that have no room, and any number of them."""
        if self.close_sent:
            return  # frames that arrived together with the one that ended the connection
        self._begun_at = self._begun_at or self.loop.time()
        before = self.buffer.length
        try:
            self.buffer.extend(event)
        except FrameTooLargeError:
            self._give_up(1009, f"A message can have at most {self.buffer.max_length} bytes.")
            return
        if self._hold is not None and self._start is None:
            try:
                self._hold.grow(self.buffer.length - before)
                self._counted += self.buffer.length - before
            except ProblemError as refusal:
                received = cast(StringIO | BytesIO, self.buffer.value)
                received.seek(0)
                kind = "text" if isinstance(event, TextMessage) else "bytes"
                # Its traceback would keep what was received.
                self._start = {kind: received.read(START_CHARS), REFUSAL_KEY: refusal.with_traceback(None)}
                self._uncount()
        if self._start is not None:
            self.buffer.value = None  # its length keeps growing, so that the size limit still applies
        if self.queue.qsize() >= MAX_WAITING_FRAMES:
            self._give_up(1008, "Too many frames at once.")
        elif event.message_finished:
            self._deliver()

    def _deliver(self) -> None:
        content = self._start or self.buffer.to_message()
        message: Message = {"type": "websocket.receive", **content, SIZE_KEY: self._counted}
        self._counted = 0
        self._forget()
        self.queue.put_nowait(cast(Any, message))
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def _forget(self) -> None:
        """Reset the state after a message was delivered or abandoned."""
        self._uncount()
        self.buffer.clear()
        self._start = self._begun_at = None

    def _uncount(self) -> None:
        if self._hold is not None:
            self._hold.shrink(self._counted)
        self._counted = 0

    def _give_up(self, code: int, reason: str) -> None:
        self._forget()
        # What the application sends from now on is answered as after a disconnect.
        self.close_sent = self.disconnected = True
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

    def handle_ping(self, event: Ping) -> None:
        # A client that sends pings and never reads would fill the memory with pongs.
        if self.writable.is_set():
            super().handle_ping(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)


def load_websocket(scope: Scope) -> BoundedWebSocket:
    """The connection of a WebSocket scope that this process serves."""
    return cast(BoundedWebSocket, scope[_KEY])
