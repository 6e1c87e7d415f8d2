"""A broadcast as sse-starlette's users write it: a queue for each client, and one event a send.

`broadcast.py PORT` answers `GET /events` with a stream, and sends the lines of the body of `POST /send` as one event
each to all streams.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator

import uvicorn
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

queues: set[asyncio.Queue[str]] = set()


async def follow(queue: asyncio.Queue[str]) -> AsyncGenerator[ServerSentEvent]:
    queues.add(queue)
    try:
        yield ServerSentEvent(event="ready")
        while True:
            yield ServerSentEvent(await queue.get(), event="chat_delta", id="1-1")
    finally:
        queues.discard(queue)


async def get_events(_: Request) -> Response:
    return EventSourceResponse(follow(asyncio.Queue()))


async def send(request: Request) -> Response:
    for line in (await request.body()).decode().splitlines():
        for queue in queues:
            queue.put_nowait(line)
    return Response(status_code=202)


app = Starlette(routes=[Route("/events", get_events), Route("/send", send, methods=["POST"])])

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", log_level="error", access_log=False)
