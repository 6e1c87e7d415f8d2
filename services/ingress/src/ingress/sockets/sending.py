"""What one client is sent: the outlet, which waits for the client, and the feeds of the conversations it follows."""

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Any

from pydantic import Field
from starlette.types import Message, Send

from everturn.core.cancellation import end_tasks
from everturn.core.ids import ConversationId
from ingress.auth.gate import Caller
from ingress.errors import absent, too_many
from ingress.fields import JsonBody, parse_conversation_id
from ingress.metrics import IngressMetrics
from ingress.sockets.calls import Answer, Payload, TargetIn, check_form
from ingress.sockets.packets import build_refusal, render_event, render_own
from ingress.sockets.websocket import BoundedWebSocket
from ingress.stream.feed import MIN_BYTES_PER_S, StreamEdge, View, read_cursor
from ingress.stream.frames import split_frames
from ingress.stream.hub import Subscription
from ingress.stream.steps import project_steps

CLOSE_TIMEOUT_S = 5
MAX_SUBSCRIPTIONS = 32
"""Per socket; each has a bounded queue."""


class Outlet:
    """Writes to one client, one frame at a time: the next frame waits until the client has received all but a few
    kilobytes of the previous ones. A client that takes longer for a frame than `timeout_s` and what the frame takes at
    MIN_BYTES_PER_S is disconnected; it can resume from its last event id. Once `closed`, nothing more is written."""

    def __init__(self, send: Send, websocket: BoundedWebSocket, *, metrics: IngressMetrics, timeout_s: float) -> None:
        self.closed = False
        self._send = send
        self._websocket = websocket
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._writing = asyncio.Lock()

    async def write(self, *frames: str) -> None:
        """Send frames in this order. Raises OSError when the client is gone or reads nothing."""
        for frame in frames:
            await self._write({"type": "websocket.send", "text": frame})

    async def write_events(self, frames: Iterable[str]) -> None:
        """Like `write`; also counts the frames as events."""
        for frame in frames:
            await self.write(frame)
            self._metrics.socket_events.inc()

    async def wait_sent(self) -> None:
        """Wait until the client has received what was written. Raises OSError like `write`."""
        await self._write(None)

    async def _write(self, message: Message | None) -> None:
        # The feeds of a socket take turns; each holds the lock for its own frame only, so the wait for it is bounded.
        async with self._writing:
            await self._write_alone(message)

    async def _write_alone(self, message: Message | None) -> None:
        size = 0 if message is None else len(message["text"].encode())
        try:
            async with asyncio.timeout(self._timeout_s + size / MIN_BYTES_PER_S):
                if self.closed:
                    raise ConnectionAbortedError("The socket is closed.")
                if message is not None:
                    await self._send(message)
                # The transport buffers everything that the client does not read, however large the message is.
                await self._websocket.writable.wait()
        except TimeoutError as error:
            self._metrics.socket_refusals.labels(reason="stuck").inc()
            self.abort()
            raise ConnectionAbortedError("The client does not read its data.") from error

    async def close(self, code: int, reason: str, *last: str) -> None:
        """Send `last` and close; the connection of a client that does not read is aborted."""
        if self.closed:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.write(*last)
                self.closed = True
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
        except OSError:
            self.abort()
        finally:
            self.end()

    def end(self) -> None:
        """Write nothing more. The server waits until the client has read what was written, which may never happen, so
        the connection is aborted a little later."""
        self.closed = True
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self.abort)

    def abort(self) -> None:
        """Abort the connection and discard unsent data."""
        self._websocket.transport.abort()


class SubscribeIn(TargetIn):
    """A conversation, the event id to continue after (`0-0` is before the first event), and what to send of it."""

    after: str | None = Field(default=None, max_length=80)
    view: View = "native"


class SubscribedOut(JsonBody):
    """The conversation's events follow, `ready` first."""

    conversation_id: str
    after: str | None
    view: View


class UnsubscribedOut(JsonBody):
    """No more events of this conversation are sent."""

    conversation_id: str


class Subscriptions:
    """Opens and ends the feeds of one socket, which are the same as those of SSE clients; their tasks belong to
    `group`."""

    def __init__(self, outlet: Outlet, streams: StreamEdge, group: asyncio.TaskGroup) -> None:
        self._outlet = outlet
        self._hub = streams.hub
        self._feed = streams.feed
        self._group = group
        self._open: dict[ConversationId, asyncio.Task[None]] = {}
        self._changing = asyncio.Lock()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._open.values())

    async def subscribe(self, caller: Caller, payload: Payload) -> Answer:
        """Follow a conversation from a cursor; a repeated call restarts from the new cursor."""
        form = check_form(SubscribeIn, payload)
        conversation_id = parse_conversation_id(form.conversation_id)
        start = read_cursor(form.after)
        async with self._changing:
            if conversation_id not in self._open and len(self._open) >= MAX_SUBSCRIPTIONS:
                raise too_many(f"This socket already follows {MAX_SUBSCRIPTIONS} conversations.", retry_after_s=1)
            client = await self._hub.open(caller.principal, conversation_id, start, caller.expires_at)
            try:
                await self._stop(conversation_id)
            except BaseException:
                self._hub.close(client)
                raise
            if self._outlet.closed:
                self._hub.close(client)
            else:
                feed = self._open[conversation_id] = self._group.create_task(
                    self._run(conversation_id, client, form.view)
                )
                # A task that is cancelled before its first step never runs.
                feed.add_done_callback(partial(self._release, conversation_id, client))
        return 200, SubscribedOut(conversation_id=conversation_id, after=form.after, view=form.view)

    async def unsubscribe(self, _: Caller, payload: Payload) -> Answer:
        """Stop following a conversation."""
        conversation_id = parse_conversation_id(check_form(TargetIn, payload).conversation_id)
        async with self._changing:
            if conversation_id not in self._open:
                raise absent("This socket does not follow the conversation.")
            await self._stop(conversation_id)
        return 200, UnsubscribedOut(conversation_id=conversation_id)

    async def _stop(self, conversation_id: ConversationId) -> None:
        # A large snapshot holds its slot until the client has read it. If its feed ended earlier, what is still
        # buffered would not count. The answer to this call waits for the buffer anyway.
        if conversation_id in self._open:
            with contextlib.suppress(OSError):
                await self._outlet.wait_sent()
        task = self._open.pop(conversation_id, None)
        if task:
            await end_tasks(task)

    async def _run(self, conversation_id: ConversationId, client: Subscription, view: View) -> None:
        """Feed the client until its socket closes, the server drains or the conversation is gone."""
        frames = self._feed.chunks(client)
        # A client that disconnected is not an error: its socket ends by itself.
        with contextlib.suppress(OSError):
            async with contextlib.aclosing(project_steps(frames) if view == "steps" else frames) as chunks:
                async for chunk in chunks:
                    await self._outlet.write_events(map(render_event, split_frames(chunk)))
            # When the credential expires, the whole socket ends with that reason.
            if not self._hub.draining and not self._feed.has_expired(client):
                gone: dict[str, Any] = {"conversation_id": conversation_id, **build_refusal(absent())}
                await self._outlet.write_events([render_own("conv_unsubscribed", gone)])

    def _release(self, conversation_id: ConversationId, client: Subscription, feed: asyncio.Task[None]) -> None:
        self._hub.close(client)
        if self._open.get(conversation_id) is feed:
            del self._open[conversation_id]
