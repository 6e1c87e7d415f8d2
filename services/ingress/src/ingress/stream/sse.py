"""The SSE endpoint: the choice of the client's cursor, the response that feeds it, and tickets that open it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, cast

import structlog
from fastapi import APIRouter, Header, Query, Request, Response
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.types import Message, Receive, Scope, Send

from everturn.core.api_model import ApiModel
from everturn.core.clock import iso
from everturn.events.cursor import EventCursor
from ingress.admission.connections import CUT_KEY, WRITER_KEY, DirectWriter
from ingress.admission.route import AdmittedRoute, StreamRoute
from ingress.auth.gate import AuthGate, Caller, CallerOf
from ingress.fields import ConversationPath
from ingress.openapi.responses import problems
from ingress.stream.feed import MIN_BYTES_PER_S, StreamEdge, View, read_cursor
from ingress.stream.hub import Subscription

_log = structlog.get_logger(__name__)

PIECE_BYTES = 65_536
"""How much of a chunk is sent at once. Only a chunk with a large snapshot or many missed events is larger."""

router = APIRouter(prefix="/conversations/{tenant}/{project}", route_class=StreamRoute, tags=["events"])
_EXAMPLE = 'id: 3-17\nevent: chat_delta\ndata: {"id":"3-17","type":"chat.delta","data":{"text":"Hello"}}\n\n'
_STREAM: dict[str, Any] = {
    "description": "Server-sent events: `ready`, the events after the cursor, then new ones; after 10 s without one, a "
    "comment.",
    "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
}

ticket_router = APIRouter(prefix="/conversations/{tenant}/{project}", route_class=AdmittedRoute, tags=["events"])


class EventStreamResponse(EventSourceResponse):
    """The library's response with one extra task instead of three, since thousands are open and idle.

    It omits the library's ping and its farewell at shutdown: the feed sends heartbeats, and the hub announces the
    shutdown. A client is disconnected if it has not read a piece of a chunk after `send_timeout_s`, or has not read a
    whole chunk after `send_timeout_s` plus its size divided by `min_bytes_per_s`. It can resume from its last id.
    """

    def __init__(
        self,
        chunks: AsyncGenerator[bytes],
        *,
        send_timeout_s: float,
        min_bytes_per_s: int = MIN_BYTES_PER_S,
        writer: DirectWriter | None = None,
    ) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType] its content is partly untyped
            chunks, ping=0, sep="\n", send_timeout=send_timeout_s
        )
        self._send_timeout_s = send_timeout_s
        self._min_bytes_per_s = min_bytes_per_s
        self._writer = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return when the feed has ended, the client has disconnected, or it reads too slowly."""
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(_watch(receive))
                await self._stream_response(send)
                watching.cancel()
        except* _Left:
            # This is the usual end of a stream, so a log line for each would be noise except when debugging.
            _log.debug("A client closed its stream")
        except* SendTimeoutError:
            # Returning now would count as a response that was left incomplete by mistake.
            cut = cast(Callable[[], None] | None, scope.get(CUT_KEY))
            if cut is not None:
                cut()
                await _wait_until_left(receive)

    async def _send_with_timeout(self, send: Send, message: Message) -> None:
        """Send a chunk in pieces: a client that reads slowly but steadily is not one that reads nothing."""
        chunk: bytes = message["body"]
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + self._send_timeout_s + len(chunk) / self._min_bytes_per_s
        for at in range(0, len(chunk), PIECE_BYTES):
            if clock() > deadline_s:
                raise SendTimeoutError
            piece = chunk[at : at + PIECE_BYTES]
            if self._writer is not None and self._writer.is_free:
                self._writer.write(piece)
            else:
                await super()._send_with_timeout(send, {**message, "body": piece})


class _Left(Exception):
    """The client has closed its connection."""


async def _watch(receive: Receive) -> None:
    """Raise _Left once the client is gone."""
    await _wait_until_left(receive)
    raise _Left


async def _wait_until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


class StreamResponse(EventStreamResponse):
    """An event stream that releases its slot however it ends."""

    def __init__(
        self, edge: StreamEdge, client: Subscription, caller: Caller, view: View, writer: DirectWriter | None
    ) -> None:
        chunks = edge.follow(client, caller, view, writer)
        super().__init__(chunks, send_timeout_s=edge.send_timeout_s, writer=writer)
        self._edge = edge
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._edge.close(self._client)


@router.get(
    "/{conversation_id}/events",
    # Set explicitly, because the response class has no status code.
    status_code=200,
    response_class=EventStreamResponse,
    responses={**problems(429), 200: _STREAM},
    openapi_extra={"security": [{"bearer": []}, {"ticket": []}, {}]},
)
async def get_events(
    *,
    request: Request,
    caller: CallerOf,
    conversation_id: ConversationPath,
    after: Annotated[
        str | None,
        Query(description="Continue after this event id; `0-0` is before the first event.", examples=["3-17"]),
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(
            description="Like `after`, but takes precedence over it; of several, the newest applies.", examples=["3-17"]
        ),
    ] = None,
    last_id_of_polyfill: Annotated[
        str | None,
        Query(
            alias="lastEventId",
            description="Like the header `Last-Event-ID`, which polyfills of EventSource send in this way.",
            examples=["3-17"],
        ),
    ] = None,
    view: Annotated[
        View,
        Query(
            description="`native` is everything. `steps` is for simple clients: `turn`, `step`, `answer`, `inject`, "
            "`compact`, `phase`, `approval`, `done` and `reset`, each with a flat payload."
        ),
    ] = "native",
    ticket: Annotated[
        str | None,
        Query(
            description="A ticket, for clients that can't send an Authorization header; send one or the other.",
            max_length=4096,
        ),
    ] = None,
) -> StreamResponse:
    """The conversation's events. Without a cursor a snapshot comes first; if the cursor is too old, a gap and a
    snapshot."""
    edge = cast(StreamEdge, request.app.state.streams)
    values = [*(request.headers.getlist("last-event-id") if last_event_id else []), last_id_of_polyfill or ""]
    start = read_newest(values) or read_cursor(after)
    with edge.slots.until_handed_over(caller.principal):
        client = await edge.hub.open(caller.principal, conversation_id, start, caller.expires_at)
    return StreamResponse(edge, client, caller, view, request.scope.get(WRITER_KEY))


def read_newest(values: Sequence[str]) -> EventCursor | None:
    """Return the newest cursor that a client sent as its last event id; None where there is none. A library can send
    one in addition to the client's own, in a separate header or in a comma-separated one. Raises a 400 problem."""
    cursors = [read_cursor(text.strip()) for value in values for text in value.split(",")]
    return max((cursor for cursor in cursors if cursor is not None), default=None)


class TicketOut(ApiModel):
    """`ticket` opens the conversation's events as `?ticket=`, until `expires_at` (UTC, RFC 3339)."""

    ticket: str
    """The ticket; pass it as `ticket` in the address of the event stream."""
    expires_at: str


@ticket_router.post("/{conversation_id}/ticket", responses=problems())
async def create_ticket(
    request: Request, response: Response, caller: CallerOf, conversation_id: ConversationPath
) -> TicketOut:
    """A ticket for this conversation's events. It opens and reopens the stream for 5 minutes, and does nothing else."""
    edge = cast(StreamEdge, request.app.state.streams)
    await edge.hub.rows.check_owner(caller.principal, conversation_id)
    ticket = cast(AuthGate, request.app.state.auth).build_ticket(caller, conversation_id)
    response.headers["Cache-Control"] = "no-store"
    return TicketOut(ticket=ticket.text, expires_at=iso(datetime.fromtimestamp(ticket.expires_at, UTC)))
