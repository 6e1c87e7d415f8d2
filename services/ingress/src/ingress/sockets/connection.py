"""One client of Socket.IO: it joins with a credential, makes calls and follows conversations until its socket ends.

One task reads the client's frames in order. Each call and each followed conversation has a task of its own, which ends
with the socket.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import structlog
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from everturn.core.clock import Clock
from everturn.core.errors import EverturnError
from everturn.core.tracing import Tracing
from everturn.limits.token_buckets import BucketState, Limit, draw_token
from ingress.admission.connections import load_address
from ingress.admission.limits import BODY_TIMEOUT_S, BodyHold, Drawn, RequestLimits, load_drawn
from ingress.auth.gate import AuthGate, Caller
from ingress.auth.revocation import CallerCheck
from ingress.errors import (
    ProblemError,
    absent,
    internal_error,
    too_large,
    too_many,
    translate_error,
    unauthorized,
    unprocessable,
)
from ingress.metrics import IngressMetrics
from ingress.sockets import packets
from ingress.sockets.calls import Answer, AuthIn, ChatCalls, Payload, check_form, note_status, open_call_span
from ingress.sockets.packets import PING_INTERVAL_S, PING_TIMEOUT_S, Event, Head, Kind
from ingress.sockets.sending import MAX_SUBSCRIPTIONS, Outlet, Subscriptions
from ingress.sockets.websocket import REFUSAL_KEY, SIZE_KEY, load_websocket
from ingress.stream.feed import StreamEdge

_log = structlog.get_logger(__name__)

JOIN_TIMEOUT_S = 10
"""Seconds from the opening of the WebSocket until the client must be authenticated."""
EVENTS_PER_S = 20
BURST = Limit(EVENTS_PER_S * 3, 3)
"""How many packets can arrive at once, and the seconds in which the bucket refills."""
MAX_REFUSED = 100
"""How many packets above the rate are refused before the socket is closed."""
MAX_JOIN_CHARS = 16_384
"""Limit for a packet that is not a call: only a token makes such packets long, and it has at most half of this."""
MAX_ATTACHMENTS = 100
"""More attachments end the socket. Up to here those above the cap are read and dropped, so that the answer can give the
reason."""
MAX_OPEN_CALLS = 16
"""Calls that run, or whose answer has not been read yet."""
MAX_CALL_S = 300
"""How long calls can run on after their client has disconnected."""
WATCH_S = 5
READING = frozenset({"conv_status.get", "conv_subscribe", "conv_unsubscribe"})
NORMAL, BROKEN, POLICY, OVERSIZED = 1000, 1002, 1008, 1009

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SocketDependencies:
    """What sockets share with the HTTP endpoints."""

    auth: AuthGate
    limits: RequestLimits
    calls: ChatCalls
    streams: StreamEdge
    metrics: IngressMetrics
    clock: Clock
    tracing: Tracing
    message_bytes: int


@dataclass(frozen=True, slots=True)
class Session:
    """A client that has joined, its rechecks, and what counts the bytes of its messages."""

    caller: Caller
    check: CallerCheck
    hold: BodyHold


@dataclass(frozen=True, slots=True)
class Frame:
    """One WebSocket message: `text`, or an attachment in `data`. `size` is what the session's hold counts of it. One
    with a `refusal` had no room in memory, and only its start is here."""

    text: str
    data: bytes | None
    size: int
    refusal: ProblemError | None


class End(Exception):
    """The socket must be closed with this code and text; `reason` is the metric's label, None if it is no refusal."""

    def __init__(self, code: int, text: str, reason: str | None = "malformed") -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.reason = reason


class Connection:
    """Serves one client; its server calls `run`, and `close_for_restart` when it drains."""

    def __init__(self, parts: SocketDependencies, scope: Scope, receive: Receive, send: Send) -> None:
        self.session: Session | None = None
        self._parts = parts
        self._http = HTTPConnection(scope)
        self.address = load_address(self._http)
        self._receive = receive
        self._send = send
        self._websocket = load_websocket(scope)
        self._outlet = Outlet(send, self._websocket, metrics=parts.metrics, timeout_s=parts.streams.send_timeout_s)
        self._tokens = BucketState()
        self._refused = 0
        self._incoming_bytes = 0
        self._incoming_since: float | None = None
        self._waiting_since: float | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve the client until either side ends the socket, then wait for its calls: like requests, they finish when
        their client disconnects. Otherwise a client that disconnects after each message could run any number."""
        self._parts.metrics.sockets.inc()
        try:
            async with asyncio.TaskGroup() as self._group:
                self._feeds = Subscriptions(self._outlet, self._parts.streams, self._group)
                self._table = {
                    **self._parts.calls.table(),
                    "conv_subscribe": self._feeds.subscribe,
                    "conv_unsubscribe": self._feeds.unsubscribe,
                }
                try:
                    with contextlib.suppress(OSError):  # the client is gone
                        await self._serve()
                except End as end:
                    self._count_refusal(end.reason)
                    await self._outlet.close(end.code, end.text)
                finally:
                    self._outlet.end()
                    self._shrink_incoming(0)
                    for feed in self._feeds.tasks:
                        feed.cancel()
                if self._calls:
                    _, late = await asyncio.wait(self._calls, timeout=MAX_CALL_S)
                    for call in late:
                        call.cancel()
        finally:
            self._parts.metrics.sockets.dec()
            if self.session:
                self.session.hold.release()
                self._parts.streams.slots.release(self.session.caller.principal)

    async def _serve(self) -> None:
        await self._receive()
        await self._send({"type": "websocket.accept"})
        try:
            async with asyncio.timeout(JOIN_TIMEOUT_S):
                await self._outlet.write(packets.render_open(secrets.token_urlsafe(15), self._parts.message_bytes))
                while self.session is None:
                    await self._handle(await self._next())
        except TimeoutError:
            self._outlet.abort()
            return
        watching = self._group.create_task(self._watch(self.session))
        try:
            while True:
                await self._handle(await self._next())
        finally:
            watching.cancel()

    async def _next(self) -> Frame:
        """The next frame. Raises End when the socket has ended."""
        self._waiting_since = self._parts.clock.monotonic()
        message = await self._receive()
        self._waiting_since = None
        if self._outlet.closed or message["type"] != "websocket.receive":
            oversized = not self._outlet.closed and message.get("code") == OVERSIZED
            self._outlet.closed = True
            raise End(NORMAL, "", "oversized" if oversized else None)
        return Frame(message.get("text") or "", message.get("bytes"), message[SIZE_KEY], message.get(REFUSAL_KEY))

    async def _handle(self, frame: Frame) -> None:
        if frame.data is not None:
            raise End(BROKEN, "An attachment arrived without its event.")
        try:
            head = packets.parse_head(frame.text)
        except packets.BadPacket as error:
            raise End(BROKEN, f"Malformed packet: {error.detail}.") from error
        if head.kind is Kind.CALL and self.session:
            await self._receive_call(self.session, head, frame)
            return
        if self.session:
            self.session.hold.shrink(frame.size)
        if head.kind is Kind.CALL:
            raise End(POLICY, "Connect first.")
        if head.kind is Kind.LEAVE:
            raise End(NORMAL, "The client disconnected.", None)
        if len(frame.text) > MAX_JOIN_CHARS:
            raise End(OVERSIZED, "This packet is too large; only calls can be larger.", "oversized")
        if self._try_draw() and head.kind is Kind.JOIN:
            await self._join(head, frame.text)

    def _try_draw(self) -> bool:
        """Draw a token of the socket's own rate. Raises End for a client that continues far above it."""
        self._tokens, draw = draw_token(self._tokens, BURST, int(self._parts.clock.monotonic() * 1_000_000))
        self._refused = 0 if draw.left > BURST.tokens / 2 else self._refused + (not draw.taken)
        if self._refused > MAX_REFUSED:
            raise End(POLICY, "Too many events.", "flood")
        return draw.taken

    async def _join(self, head: Head, text: str) -> None:
        """Answer a request to join. A client whose data can't be read, or that names another namespace, can try again;
        a rejected credential ends the socket."""
        try:
            if head.namespace != "/":
                raise absent("The only namespace is /.")
            if self.session:
                raise End(POLICY, "Already connected.")
            auth = packets.parse_join(text, head)
        except ProblemError as refusal:
            self._count_refusal("namespace")
            await self._outlet.write(packets.render_refused_join(head.namespace, refusal))
            return
        session = await self._try(self._admit(auth))
        if isinstance(session, ProblemError):
            if (drawn := load_drawn(self._http.scope)) is not None:
                await drawn.settle(session.answer.status)
            await self._outlet.write(packets.render_refused_join("/", session))
            raise End(POLICY, "The connection was refused.", session.kind)
        self._websocket.allow(self._parts.message_bytes, session.hold)
        await self._outlet.write(packets.render_joined(secrets.token_urlsafe(15)))
        await self._outlet.write_events([packets.render_own("session_info", self._describe(session.caller))])

    async def _admit(self, auth: Any) -> Session:
        """Raises problems: 401, 403, 404, 422, 429, 503."""
        parts, headers = self._parts, self._http.headers
        who = check_form(AuthIn, {} if auth is None else auth)
        token = _read_token(headers, who)
        with parts.limits.guard.watching(self.address, token or ""):
            caller = await parts.auth.authenticate_socket(token, headers, tenant=who.tenant, project=who.project)
        await parts.limits.admit(self._http, caller.principal, write=False)
        parts.streams.slots.acquire(caller.principal)
        self.session = Session(caller, parts.streams.recheck.begin(caller), parts.limits.bodies.open(caller.principal))
        return self.session

    def _describe(self, caller: Caller) -> dict[str, Any]:
        me, caps = caller.principal, self._parts.calls.caps
        return {
            "user_id": me.user_id,
            "tenant": me.tenant,
            "project": me.project,
            "roles": sorted(me.roles),
            "expires_at": caller.expires_at,  # Unix time
            "limits": {
                "message_bytes": self._parts.message_bytes,
                "text_chars": caps.text_chars,
                "files": caps.files,
                "subscriptions": MAX_SUBSCRIPTIONS,
                "events_per_s": EVENTS_PER_S,
            },
        }

    async def _receive_call(self, session: Session, head: Head, frame: Frame) -> None:
        """Read a call with its attachments and start it. A call is refused as early as possible; the attachments that
        follow are read and dropped."""
        if head.attachments > MAX_ATTACHMENTS:
            raise End(OVERSIZED, "Too many attachments.", "oversized")
        self._incoming_since, self._incoming_bytes = self._parts.clock.monotonic(), frame.size
        missing, drawn, attachments = head.attachments, None, list[bytes]()
        try:
            self._check_call(head, frame)
            # Before the JSON is read. A name that is not written plainly counts as a write.
            drawn = await self._parts.limits.admit(self._http, session.caller.principal, write=head.name not in READING)
            event = await packets.load_event(frame.text, head)
            if event.name not in self._table:
                raise absent("There is no such event.")
            while missing:
                missing -= 1
                attachments.append(await self._read_attachment())
        except ProblemError as refusal:
            attachments.clear()
            self._shrink_incoming(frame.size)
            await self._refuse(head.ack, refusal, drawn)
            for _ in range(missing):
                with contextlib.suppress(ProblemError):
                    await self._read_attachment()
                self._shrink_incoming(frame.size)
            self._shrink_incoming(0)
        else:
            event.fill(attachments)
            size, self._incoming_bytes = self._incoming_bytes, 0
            self._parts.metrics.socket_calls.labels(kind=event.name).inc()
            call = self._group.create_task(self._run_call(session, event, head.ack, drawn, size))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        self._incoming_since = None

    def _check_call(self, head: Head, frame: Frame) -> None:
        caps = self._parts.calls.caps
        if not self._try_draw():
            raise too_many("Too many events at once.", retry_after_s=1)
        if frame.refusal:
            raise frame.refusal
        if len(self._calls) >= MAX_OPEN_CALLS:
            raise too_many(f"{MAX_OPEN_CALLS} calls are already open.", retry_after_s=1)
        if head.attachments > caps.files:
            raise too_large(f"A message can have at most {caps.files} files.")
        if frame.size > caps.json_bytes:
            raise too_large(f"The text of the event has more than {caps.json_bytes} bytes. Send files as attachments.")

    async def _read_attachment(self) -> bytes:
        """Raises a problem if it had no room in memory, and End for what is no attachment or too large."""
        part = await self._next()
        if part.data is None:
            raise End(BROKEN, "An attachment was expected.")
        if part.refusal:
            raise part.refusal
        self._incoming_bytes += part.size
        if self._incoming_bytes > self._parts.message_bytes:
            raise End(OVERSIZED, f"The message has more than {self._parts.message_bytes} bytes.", "oversized")
        return part.data

    def _shrink_incoming(self, kept: int) -> None:
        """Count only `kept` bytes of the call that is being received."""
        if self.session:
            self.session.hold.shrink(self._incoming_bytes - kept)
        self._incoming_bytes = kept

    async def _refuse(self, ack: int | None, refusal: ProblemError, drawn: Drawn | None) -> None:
        if drawn:
            await drawn.settle(refusal.answer.status)
        self._count_refusal(refusal.kind)
        if ack is not None:
            await self._outlet.write(packets.render_answer(ack, refusal.answer.status, packets.build_problem(refusal)))

    async def _run_call(self, session: Session, event: Event, ack: int | None, drawn: Drawn | None, size: int) -> None:
        """Answer a call with the status and body that REST would return. It stays open until its answer is read."""
        try:
            status, body = await self._answer(session.caller, event, drawn)
        finally:
            # The answer may wait long for a client that does not read; the payload must not.
            del event
            session.hold.shrink(size)
        if ack is not None:
            with contextlib.suppress(OSError):
                await self._outlet.write(packets.render_answer(ack, status, body))

    async def _answer(self, caller: Caller, event: Event, drawn: Drawn | None) -> tuple[int, dict[str, Any]]:
        tracing, tenant = self._parts.tracing, caller.principal.tenant
        with open_call_span(tracing, event.name, self._http.scope, tenant=tenant, payload=event.arguments) as span:
            answer = await self._try(self._dispatch(caller, event))
            if isinstance(answer, ProblemError):
                status, body = answer.answer.status, packets.build_problem(answer)
                if drawn:
                    await drawn.settle(status)
            else:
                status, body = answer[0], answer[1].model_dump(mode="json")
            note_status(span, status)
            return status, body

    async def _dispatch(self, caller: Caller, event: Event) -> Answer:
        if len(event.arguments) != 1 or not isinstance(event.arguments[0], dict):
            raise unprocessable("A call must have one object as its payload.")
        return await self._table[event.name](caller, cast(Payload, event.arguments[0]))

    async def _try(self, work: Awaitable[Result]) -> Result | ProblemError:
        """The edge of sockets: an exception becomes the answer to its call."""
        try:
            return await work
        except ProblemError as error:
            return error
        except Exception as error:  # noqa: BLE001 - the edge of sockets
            translated = translate_error(error) if isinstance(error, EverturnError) else None
            if translated is None:
                self._parts.metrics.unhandled.inc()
                _log.exception("Unhandled error in a call of a socket")
            return translated or internal_error()

    async def _watch(self, session: Session) -> None:
        """Ping the client; end the socket when its credential is no longer valid, when it is silent, or when a message
        holds its bytes for too long without being complete."""
        clock, expires_at = self._parts.clock, session.caller.expires_at
        pinged_at = clock.monotonic()
        with contextlib.suppress(OSError):
            while not self._outlet.closed:
                pause_s = min(WATCH_S, self._parts.streams.recheck.every_s)
                if expires_at is not None:
                    pause_s = min(pause_s, max(0.0, expires_at - clock.now().timestamp()))
                await asyncio.sleep(pause_s)
                now = clock.monotonic()
                if expires_at is not None and expires_at <= clock.now().timestamp():
                    await self._dismiss(unauthorized("The credential has expired."))
                elif refusal := await session.check.try_refusal():
                    await self._dismiss(refusal)
                elif self._is_late(now):
                    await self._outlet.close(POLICY, "The message was not received in time.")
                elif self._is_silent(now):
                    self._outlet.abort()
                elif now - pinged_at >= PING_INTERVAL_S:
                    pinged_at = now
                    await self._outlet.write(packets.PING)

    def _is_late(self, now: float) -> bool:
        """Whether an incomplete message or call began too long ago, and so holds its bytes for too long."""
        message_s = self._websocket.receiving_s
        call_s = now - self._incoming_since if self._incoming_since is not None else 0.0
        return max(message_s, call_s) > BODY_TIMEOUT_S

    def _is_silent(self, now: float) -> bool:
        """Whether nothing was received for too long. While a large message arrives, the pongs wait behind it."""
        if self._waiting_since is None or self._websocket.receiving_s:
            return False
        return now - self._waiting_since > PING_INTERVAL_S + PING_TIMEOUT_S

    async def _dismiss(self, refusal: ProblemError) -> None:
        """End the session and send the client the reason, so that it does not reconnect by itself."""
        self._count_refusal("expired")
        reason = packets.render_own("session_end", packets.build_refusal(refusal))
        await self._outlet.close(POLICY, "The session has ended.", reason, packets.FAREWELL)

    async def close_for_restart(self, code: int, reason: str, last: str, quiet_s: float) -> None:
        """Give running calls and feeds time to finish, send a client that has joined `last`, and close."""
        for tasks in (self._calls, self._feeds.tasks):
            if tasks:
                await asyncio.wait([*tasks], timeout=quiet_s)
        await self._outlet.close(code, reason, *([last] if self.session else []))

    def _count_refusal(self, reason: str | None) -> None:
        if reason:
            self._parts.metrics.socket_refusals.labels(reason=reason).inc()


def _read_token(headers: Headers, who: AuthIn) -> str | None:
    """The client's token; clients other than browsers can send it in the handshake's header instead."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if not scheme:
        return who.token
    if who.token is not None or scheme.lower() != "bearer" or len(headers.getlist("authorization")) > 1:
        raise unauthorized("Send exactly one token.")
    return value.strip()
