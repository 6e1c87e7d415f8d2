"""One open socket: what reaches the library, what is sent beside it, and how it ends."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from starlette.types import Message, Receive, Send

from ingress.admission.metrics import IngressMetrics
from ingress.auth.gate import Caller
from ingress.sockets.guard import Close, Drop, Pass, Phase, Refuse, RefuseJoin, SocketGuard, Verdict
from ingress.sockets.packets import (
    ANSWER,
    CONNECTED,
    REFUSED,
    build_refusal,
    render_answer,
    render_farewell,
    render_own,
    render_refused_namespace,
)
from ingress.sockets.websocket import Line

SEND_TIMEOUT_S = 60
"""How long a client may take nothing before its connection is cut; it goes on by its last event id."""
CLOSE_TIMEOUT_S = 5
POLICY = 1008


class Connection:
    """Stands between the server and the library for one client.

    Events are written here, not through the library's queue, which has no bound: who reads slowly holds up only its
    own feeds, and those resync. The library sends nothing but its pings and the answers to calls, which are counted.
    """

    def __init__(
        self, receive: Receive, send: Send, *, line: Line, guard: SocketGuard, metrics: IngressMetrics, max_bytes: int
    ) -> None:
        self.caller: Caller | None = None
        self.session_info: dict[str, Any] = {}
        self.closed = False
        self._receive = receive
        self._send = send
        self._line = line
        self._guard = guard
        self._metrics = metrics
        self._max_bytes = max_bytes
        self._writing = asyncio.Lock()
        self._whole: deque[int] = deque()
        self._running = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def joined(self) -> bool:
        return self._guard.phase is Phase.JOINED

    async def receive(self) -> Message:
        """The next message for the library: only what the guard lets through."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self._end(message)
                return message
            if message["type"] != "websocket.receive":
                return message
            frame = message.get("bytes")
            verdict = self._guard.judge(frame if frame is not None else message["text"])
            if await self._obey(verdict):
                return message

    async def _obey(self, verdict: Verdict) -> bool:
        """Whether the library gets the frame."""
        match verdict:
            case Pass(name, size):
                if name is not None:
                    self._begin(name, size)
                return True
            case Drop():
                return False
            case Refuse(ack, why):
                self._metrics.socket_refusals.labels(cause=str(why.answer.status)).inc()
                if ack is not None:
                    await self.send_text(render_answer(ack, build_refusal(why)))
                return False
            case RefuseJoin(namespace, why):
                self._metrics.socket_refusals.labels(cause="namespace").inc()
                await self.send_text(render_refused_namespace(namespace, why))
                return False
            case Close(code, reason, cause):
                if cause != "left":
                    self._metrics.socket_refusals.labels(cause=cause).inc()
                await self.close(code, reason)
                return False

    def _begin(self, name: str, size: int) -> None:
        self._metrics.socket_calls.labels(event=name).inc()
        self._whole.append(size)
        self._quiet.clear()

    def begin_call(self) -> int:
        """The library runs the next call; returns its bytes, for `end_call`. Calls begin in the order they came."""
        self._running += 1
        return self._whole.popleft()

    def end_call(self, size: int) -> None:
        """A call is done; its answer may still wait."""
        self._running -= 1
        self._guard.open_bytes -= size
        self._settle()

    def _settle(self) -> None:
        if not (self._running or self._whole or (self._guard.open_calls and not self.closed)):
            self._quiet.set()

    async def wait_quiet(self, timeout_s: float) -> None:
        """Wait until no call runs and all answers are sent, but not longer."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._quiet.wait()
        except TimeoutError:
            return

    async def send(self, message: Message) -> None:
        """What the library sends."""
        if message["type"] == "websocket.close":
            await self.close(message.get("code", 1000), message.get("reason") or "")
            return
        await self._write(message)
        text = message.get("text") or ""
        if text.startswith(ANSWER):
            self._guard.open_calls -= 1
            self._settle()
        elif text.startswith(CONNECTED):
            await self._greet()
        elif text.startswith(REFUSED):
            await self.close(POLICY, "The connection was refused.")

    async def _greet(self) -> None:
        self._guard.phase = Phase.JOINED
        self._line.allow(self._max_bytes)
        self._metrics.socket_events.inc()
        await self.send_text(render_own("session_info", self.session_info))

    async def send_text(self, *frames: str) -> None:
        """Send frames in this order. Raises OSError when the client is gone or takes nothing."""
        for frame in frames:
            await self._write({"type": "websocket.send", "text": frame})

    async def send_events(self, frames: Iterable[str]) -> None:
        """Send events, counted."""
        for frame in frames:
            await self.send_text(frame)
            self._metrics.socket_events.inc()

    async def _write(self, message: Message) -> None:
        if self.closed:
            raise ConnectionAbortedError("The socket is closed.")
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S), self._writing:
                await self._send(message)
        except TimeoutError as error:
            self._metrics.socket_refusals.labels(cause="stuck").inc()
            self._line.abort()
            raise ConnectionAbortedError("The client takes nothing.") from error

    async def close(self, code: int, reason: str, *, last: Iterable[str] = ()) -> None:
        """Send what is last, and end; a client that does not read is cut off."""
        if self.closed:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.send_text(*last)
                self.closed = True
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
        except (TimeoutError, OSError):
            self._line.abort()
        finally:
            self.closed = True
            self._cut_later()

    async def dismiss(self, refusal: dict[str, Any]) -> None:
        """End the session for a reason that the client is told, so that it does not come back by itself."""
        await self.close(POLICY, "The session is over.", last=(render_own("session_end", refusal), render_farewell()))

    def _end(self, message: Message) -> None:
        if message.get("code") == 1009 and not self.closed:
            self._metrics.socket_refusals.labels(cause="oversized").inc()
        self.closed = True
        self._settle()
        self._cut_later()

    def _cut_later(self) -> None:
        # Closing waits for what was written to be read, which may be never.
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self._line.abort)
