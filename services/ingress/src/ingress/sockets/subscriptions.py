"""Following conversations over a socket: one feed for each, the same as an SSE client has."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from everturn.core.cancellation import end_tasks
from everturn.core.ids import ConversationId
from ingress.admission.fields import load_conversation_id
from ingress.errors import absent, too_many
from ingress.sockets.calls import Answer, Payload, check_form
from ingress.sockets.connection import Connection
from ingress.sockets.packets import build_refusal, render_event, render_own
from ingress.sockets.schemas import SubscribedOut, SubscribeIn, TargetIn, UnsubscribedOut
from ingress.stream.feed import Feed
from ingress.stream.frames import split_frames
from ingress.stream.hub import Hub
from ingress.stream.sse import read_cursor
from ingress.stream.subscription import Subscription

MAX_SUBSCRIPTIONS = 32
"""Per socket; each has a bounded queue."""


class Subscriptions:
    """Opens and ends the feeds of one socket; their tasks belong to `group`."""

    def __init__(self, connection: Connection, *, hub: Hub, feed: Feed, group: asyncio.TaskGroup) -> None:
        self._connection = connection
        self._hub = hub
        self._feed = feed
        self._group = group
        self._open: dict[ConversationId, asyncio.Task[None]] = {}
        self._changing = asyncio.Lock()

    @property
    def count(self) -> int:
        return len(self._open)

    async def subscribe(self, payload: Payload) -> Answer:
        """Follow a conversation from a cursor; a repeated call restarts from the new cursor."""
        form = check_form(SubscribeIn, payload)
        conversation_id = load_conversation_id(form.conversation_id)
        start = read_cursor(form.after)
        caller = self._connection.caller
        if caller is None:
            raise absent()
        async with self._changing:
            if conversation_id not in self._open and len(self._open) >= MAX_SUBSCRIPTIONS:
                raise too_many(f"This socket already follows {MAX_SUBSCRIPTIONS} conversations.", retry_after_s=1)
            client = await self._hub.open(caller.principal, conversation_id, start, caller.expires_at)
            try:
                await self._stop(conversation_id)
            except BaseException:
                self._hub.close(client)
                raise
            self._start(conversation_id, client)
        return 200, SubscribedOut(conversation_id=conversation_id, after=form.after)

    async def unsubscribe(self, payload: Payload) -> Answer:
        """Stop following a conversation."""
        conversation_id = load_conversation_id(check_form(TargetIn, payload).conversation_id)
        async with self._changing:
            if conversation_id not in self._open:
                raise absent("This socket does not follow the conversation.")
            await self._stop(conversation_id)
        return 200, UnsubscribedOut(conversation_id=conversation_id)

    def _start(self, conversation_id: ConversationId, client: Subscription) -> None:
        if self._connection.closed:
            self._hub.close(client)
            return
        self._open[conversation_id] = self._group.create_task(self._run(conversation_id, client))

    async def _stop(self, conversation_id: ConversationId) -> None:
        # A large snapshot holds its slot until the client has read it. If its feed ended earlier, what is still
        # buffered would not count. The answer to this call waits for the buffer anyway.
        if conversation_id in self._open:
            with contextlib.suppress(OSError):
                await self._connection.wait_sent()
        task = self._open.pop(conversation_id, None)
        if task:
            await end_tasks(task)

    async def _run(self, conversation_id: ConversationId, client: Subscription) -> None:
        """Feed the socket until it closes, the server drains or the conversation is gone."""
        try:
            # A client that disconnected is not an error: its socket ends by itself.
            with contextlib.suppress(OSError):
                async with contextlib.aclosing(self._feed.chunks(client)) as chunks:
                    async for chunk in chunks:
                        await self._connection.send_events(render_event(event) for event in split_frames(chunk))
                # When the credential expires, the whole socket ends with that reason.
                if not self._hub.draining and not self._feed.has_expired(client):
                    await self._tell_end(conversation_id)
        finally:
            self._hub.close(client)
            if self._open.get(conversation_id) is asyncio.current_task():
                del self._open[conversation_id]

    async def _tell_end(self, conversation_id: ConversationId) -> None:
        gone = {"conversation_id": conversation_id, **build_refusal(absent())}
        await self._connection.send_events([render_own("conv_unsubscribed", gone)])

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the socket."""
        if self._connection.closed:
            work.close()
        else:
            self._group.create_task(work)

    def end(self) -> None:
        """Cancel all feeds once the socket is gone."""
        for task in self._open.values():
            task.cancel()

    async def wait_ended(self, timeout_s: float) -> None:
        """Wait until all feeds have ended, for at most `timeout_s`."""
        if self._open:
            await asyncio.wait(list(self._open.values()), timeout=timeout_s)
