"""One open socket: what reaches the library, what is sent around it, and how the socket ends."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Message, Receive, Send

from ingress.admission.limits import BODY_TIMEOUT_S, BodyHold, Drawn
from ingress.admission.metrics import IngressMetrics
from ingress.auth.gate import Caller
from ingress.errors import ProblemError
from ingress.sockets.framing import BadFrame, Call, Opening, load_packet
from ingress.sockets.guard import Close, Drop, Keep, Pass, Phase, Refuse, RefuseJoin, SocketGuard, Verdict
from ingress.sockets.library import hand_over
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
from ingress.sockets.websocket import COUNTED_KEY, REFUSAL_KEY, Line
from ingress.stream.recheck import CallerCheck

CLOSE_TIMEOUT_S = 5
PARSED_KEY = "everturn.parsed"
POLICY = 1008


@dataclass(frozen=True, slots=True)
class Admitted:
    """The admitted caller, and the limits of its messages.

    `draw` draws a token for the call with this name (None: not known yet) before its data are read. It returns the
    token, the refusal if there is no token, or None without a limit.
    """

    caller: Caller
    standing: CallerCheck
    session_info: dict[str, Any]
    hold: BodyHold
    draw: Callable[[str | None], Awaitable[Drawn | ProblemError | None]]


@dataclass(frozen=True, slots=True)
class Held:
    """What a call holds until it ends: its bytes, those counted in the body budget, and the token it drew.

    An `acked` call stays open until its answer is sent.
    """

    size: int
    counted: int
    drawn: Drawn | None
    acked: bool

    async def settle(self, refusal: ProblemError) -> None:
        """Give the token back if the client must retry the call later."""
        if self.drawn is not None:
            await self.drawn.settle(refusal.answer.status)


@dataclass(slots=True)
class _Upload:
    """The frames received of an incomplete call, and what is held for them."""

    frames: list[Message] = field(default_factory=list[Message])
    counted: int = 0
    begun_at: float | None = None
    drawn: Drawn | None = None


class Connection:
    """Connects the server and the library for one client.

    Events are written here, not through the library's unbounded queue: a slow client delays only its own feeds, and
    those resync. The library sends only pings and the answers to calls, which are counted. A client that reads nothing
    for `send_timeout_s` is disconnected; it can resume from its last event id.
    """

    def __init__(
        self,
        receive: Receive,
        send: Send,
        *,
        line: Line,
        guard: SocketGuard,
        metrics: IngressMetrics,
        max_bytes: int,
        send_timeout_s: float,
    ) -> None:
        self.admitted: Admitted | None = None
        self.closed = False
        self._receive = receive
        self._send = send
        self._line = line
        self._guard = guard
        self._metrics = metrics
        self._max_bytes = max_bytes
        self._send_timeout_s = send_timeout_s
        self._writing = asyncio.Lock()
        self._upload = _Upload()
        self._ready: deque[Message] = deque()
        self._whole: deque[Held] = deque()
        self._running = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def joined(self) -> bool:
        return self._guard.phase is Phase.JOINED

    @property
    def caller(self) -> Caller | None:
        return self.admitted.caller if self.admitted else None

    def is_late(self, now: float) -> bool:
        """Whether an incomplete message began too long ago, in loop time, and so holds its bytes for too long."""
        began = [at for at in (self._line.begun_at, self._upload.begun_at) if at is not None]
        return bool(began) and now - min(began) > BODY_TIMEOUT_S

    async def receive(self) -> Message:
        """Return the next message for the library: only what the guard passes, and a call only once it is complete."""
        while not self._ready:
            message = await self._receive()
            if message["type"] != "websocket.receive":
                if message["type"] == "websocket.disconnect":
                    self.end(oversized=message.get("code") == 1009)
                return message
            await self._obey(await self._judge(message), message)
        message = self._ready.popleft()
        hand_over(message.pop(PARSED_KEY, None))
        return message

    async def _judge(self, message: Message) -> Verdict:
        binary = message.get("bytes")
        frame: str | bytes = binary if binary is not None else message["text"]
        if REFUSAL_KEY in message:
            return self._guard.turn_away(frame, message[REFUSAL_KEY])
        size = _count_bytes(frame, self._max_bytes)
        begun = self._guard.begin(frame, size)
        if not isinstance(begun, Opening):
            return begun
        drawn = await self.admitted.draw(begun.name) if self.admitted else None
        if isinstance(drawn, ProblemError):
            return self._guard.refuse(begun, drawn)
        self._upload.drawn = drawn
        try:
            packet = await load_packet(str(frame))
        except BadFrame as error:
            packet = error
        if isinstance(packet, Call):
            message[PARSED_KEY] = packet.data
        return self._guard.judge(begun, packet, size)

    async def _obey(self, verdict: Verdict, message: Message) -> None:
        counted = message.get(COUNTED_KEY, 0)
        match verdict:
            case Keep():
                self._keep(message, counted)
                return
            case Pass(str() as name, size, acked):
                self._keep(message, counted)
                self._begin(name, size, acked=acked)
                return
            case Pass():
                self._ready.append(message)
            case Drop():
                pass
            case Refuse(ack, why):
                await Held(0, 0, self._upload.drawn, acked=False).settle(why)
                self._drop_upload()
                self._metrics.socket_refusals.labels(reason=why.kind).inc()
                if ack is not None:
                    await self.send_text(render_answer(ack, build_refusal(why)))
            case RefuseJoin(namespace, why):
                self._metrics.socket_refusals.labels(reason="namespace").inc()
                await self.send_text(render_refused_namespace(namespace, why))
            case Close(code, text, reason):
                if reason != "left":
                    self._metrics.socket_refusals.labels(reason=reason).inc()
                await self.close(code, text)
        self._shrink(counted)

    def _keep(self, message: Message, counted: int) -> None:
        upload = self._upload
        upload.frames.append(message)
        upload.counted += counted
        upload.begun_at = upload.begun_at or asyncio.get_running_loop().time()

    def _drop_upload(self) -> None:
        """Drop a call that will not be completed."""
        self._shrink(self._upload.counted)
        self._upload = _Upload()

    def _shrink(self, counted: int) -> None:
        if self.admitted:
            self.admitted.hold.shrink(counted)

    def _begin(self, name: str, size: int, *, acked: bool) -> None:
        self._metrics.socket_calls.labels(kind=name).inc()
        self._ready.extend(self._upload.frames)
        self._whole.append(Held(size, self._upload.counted, self._upload.drawn, acked))
        self._upload = _Upload()
        self._quiet.clear()

    def begin_call(self) -> Held:
        """Record that the library runs the next call; returns what it holds, for `end_call`. Calls begin in order of
        arrival."""
        self._running += 1
        return self._whole.popleft()

    def end_call(self, held: Held) -> None:
        """Record that a call has ended; its answer may still wait to be sent."""
        self._running -= 1
        self._guard.open_bytes -= held.size
        self._guard.open_calls -= not held.acked
        self._shrink(held.counted)
        self._settle()

    def _settle(self) -> None:
        if not (self._running or self._whole or (self._guard.open_calls and not self.closed)):
            self._quiet.set()

    async def wait_quiet(self, timeout_s: float) -> None:
        """Wait until no call runs and all answers are sent, for at most `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._quiet.wait()
        except TimeoutError:
            return

    async def send(self, message: Message) -> None:
        """Send a message of the library."""
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
        if self.admitted:
            self._line.allow(self._max_bytes, self.admitted.hold)
            self._metrics.socket_events.inc()
            await self.send_text(render_own("session_info", self.admitted.session_info))

    async def send_text(self, *frames: str) -> None:
        """Send frames in this order. Raises OSError when the client is gone or reads nothing."""
        for frame in frames:
            await self._write({"type": "websocket.send", "text": frame})

    async def send_events(self, frames: Iterable[str]) -> None:
        """Send events and count them."""
        for frame in frames:
            await self.send_text(frame)
            self._metrics.socket_events.inc()

    async def wait_sent(self) -> None:
        """Wait until the client has received what was written. Raises OSError when it is gone or reads nothing."""
        await self._write(None)

    async def _write(self, message: Message | None) -> None:
        if self.closed:
            raise ConnectionAbortedError("The socket is closed.")
        try:
            async with asyncio.timeout(self._send_timeout_s), self._writing:
                if message is not None:
                    await self._send(message)
                # The transport buffers everything that the client does not read, however large the message is.
                await self._line.wait_sent()
        except TimeoutError as error:
            self._metrics.socket_refusals.labels(reason="stuck").inc()
            self._line.abort()
            raise ConnectionAbortedError("The client reads no data.") from error

    async def close(self, code: int, reason: str, *, last: Iterable[str] = ()) -> None:
        """Send `last` and close; the connection of a client that does not read is aborted."""
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
        """End the session and send the client the reason, so that it does not reconnect by itself."""
        self._metrics.socket_refusals.labels(reason="expired").inc()
        await self.close(POLICY, "The session is over.", last=(render_own("session_end", refusal), render_farewell()))

    def end(self, *, oversized: bool = False) -> None:
        """Record that the client is gone or nothing more is read from it; unsent answers are not awaited."""
        if oversized and not self.closed:
            self._metrics.socket_refusals.labels(reason="oversized").inc()
        self.closed = True
        self._drop_upload()
        self._settle()
        self._cut_later()

    def _cut_later(self) -> None:
        # Closing waits until the client has read what was written, which may never happen.
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self._line.abort)


def _count_bytes(frame: str | bytes, enough: int) -> int:
    """The size of a frame in bytes; for a text of more than `enough` characters, their number: it is too large
    anyway."""
    if isinstance(frame, bytes) or frame.isascii() or len(frame) > enough:
        return len(frame)
    return len(frame.encode())
