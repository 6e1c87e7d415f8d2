"""Two servers to compare with: the cheapest possible stream, and a pipe of the platform's shape without the platform.

`pipe.py serve PORT REDIS_URL` answers `GET /floor` from a generator in its own process, and `GET /pipe` with what a
worker writes to Redis for it; `pipe.py work REDIS_URL` is that worker. It writes everything that gathered while its
last write was on its way. Neither stores, checks or resumes anything. A stream has 200 tokens, each an event.
"""

import asyncio
import itertools
import json
import sys
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import redis.asyncio
import uvicorn
import uvloop

TOKENS = 200
JOBS, GROUP, DONE = "jobs", "workers", b"done"
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}


async def generate() -> AsyncGenerator[bytes]:
    for number in range(TOKENS):
        yield json.dumps({"type": "delta", "number": number, "text": "tok~ ", "time": time.time()}).encode()
        await asyncio.sleep(0)


async def stream_floor() -> AsyncGenerator[bytes]:
    async with aclosing(generate()) as events:
        async for event in events:
            yield b"data: " + event + b"\n\n"


async def stream_pipe(client: redis.asyncio.Redis) -> AsyncGenerator[bytes]:
    key, last = f"events:{uuid.uuid4().hex}", b"0"
    await client.xadd(JOBS, {"key": key}, maxlen=10_000, approximate=True)
    while True:
        for _, entries in await client.xread({key: last}, block=5_000, count=TOKENS):
            frames = [b"id: " + entry + b"\ndata: " + fields[b"d"] + b"\n\n" for entry, fields in entries]
            last, ends = entries[-1][0], entries[-1][1][b"d"] == DONE
            yield b"".join(frames)
            if ends:
                return


def serve(port: int, redis_url: str) -> None:
    client = redis.asyncio.Redis.from_url(redis_url, max_connections=200)

    async def answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await receive()
        await send(START)
        stream = stream_floor() if scope["path"] == "/floor" else stream_pipe(client)
        async with aclosing(stream):
            async for body in stream:
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    uvicorn.run(
        answer,  # type: ignore[arg-type]
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_level="error",
        access_log=False,
    )


async def work(redis_url: str) -> None:
    client = redis.asyncio.Redis.from_url(redis_url)
    await client.xgroup_create(JOBS, GROUP, "0", mkstream=True)
    running: set[asyncio.Task[None]] = set()
    while True:
        jobs = await client.xreadgroup(GROUP, "worker", {JOBS: ">"}, count=32, block=2_000)
        for job, fields in itertools.chain.from_iterable(entries for _, entries in jobs):
            task = asyncio.create_task(write(client, job, fields[b"key"].decode()))
            running.add(task)
            task.add_done_callback(running.discard)


async def write(client: redis.asyncio.Redis, job: bytes, key: str) -> None:
    waiting: list[bytes] = []
    news, ended = asyncio.Event(), False

    async def flush() -> None:
        while not ended or waiting:
            await news.wait()
            news.clear()
            pipeline = client.pipeline(transaction=False)
            for event in waiting:
                pipeline.xadd(key, {"d": event})
            waiting.clear()
            await pipeline.execute()

    flushing = asyncio.create_task(flush())
    async with aclosing(generate()) as events:
        async for event in events:
            waiting.append(event)
            news.set()
    waiting.append(DONE)
    ended = True
    news.set()
    await flushing
    pipeline = client.pipeline(transaction=False)
    pipeline.expire(key, 60)
    pipeline.xack(JOBS, GROUP, job)
    await pipeline.execute()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]), sys.argv[3])
    else:
        uvloop.run(work(sys.argv[2]))
