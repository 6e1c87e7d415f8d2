"""P19: how long after a model has written it the first word of an answer is shown, under each codec.

The model is an HTTP server of this process that speaks OpenAI's API and writes a token each 20 ms, the speed of real
models. The time runs from the first token that can be shown to the first word of the answer at a client: through the
SDK, the reader of the codec, the worker, Redis, the ingress and SSE. Native text can be shown from its first token on,
prose under channels once 16 characters are no markup, channels and JSON where their answer begins. Needs nothing
running: it starts its own platform in a folder that it removes.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from helpers.goals import Goal, build_goal, run_goals
from helpers.whole_turns import LIMIT_S, PlatformClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from chat_proc.channels.prose import SETTLED_CHARS
from everturn_local.supervision.platform import Platform

PAUSE_S = 0.02
TOKEN_CHARS = 4
WARMUPS = 3
ANSWER = "The quick brown fox jumps over the lazy dog, and then it rests for a while."
REPLIES = {
    "native": ANSWER,
    "prose under channels": ANSWER,
    "channels": f'<channel:action>{{"action": "complete", "notes": "", "final_answer": "{ANSWER}"}}</channel:action>',
    "json": f'{{"action": "final_answer", "answer": "{ANSWER}"}}',
}
LEADS = {codec: reply.index(ANSWER) for codec, reply in REPLIES.items()} | {"prose under channels": SETTLED_CHARS - 1}
"""The characters before the first token that can be shown."""
CODECS = {"native": "native", "prose under channels": "channels", "channels": "channels", "json": "json"}
GOAL_MS = 30.0
START_LIMIT_S = 10.0


class Model:
    """Writes the reply of the codec that the message names, and notes when it wrote the first token that can be
    shown."""

    def __init__(self) -> None:
        self.first_s = 0.0

    async def answer(self, request: Request) -> StreamingResponse:
        asked = await request.body()
        codec = next(name for name in REPLIES if f"codec: {name}.".encode() in asked)
        return StreamingResponse(self._write(REPLIES[codec], LEADS[codec]), media_type="text/event-stream")

    async def _write(self, reply: str, lead: int) -> AsyncGenerator[str, None]:
        for at in range(0, len(reply), TOKEN_CHARS):
            if at <= lead < at + TOKEN_CHARS:
                self.first_s = time.perf_counter()
            yield _build_chunk({"content": reply[at : at + TOKEN_CHARS]}, None)
            await asyncio.sleep(PAUSE_S)
        yield _build_chunk({}, "stop")
        yield "data: [DONE]\n\n"


def _build_chunk(delta: dict[str, str], reason: str | None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n"


class FirstWordClient(PlatformClient):
    """Notes when the first word of the answer arrives."""

    def __init__(self, url: str, codec: str) -> None:
        super().__init__(url, codec.replace(" ", "-"))
        self.message = json.dumps({"text": f"codec: {codec}.", "bundle_id": CODECS[codec]}).encode()
        self.first_s = 0.0

    def note(self, data: bytes) -> None:
        if not self.first_s and b'"channel":"answer"' in data:
            self.first_s = time.perf_counter()


def measure(turns: int) -> list[Goal]:
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder:
        return asyncio.run(measure_in(Path(folder), turns))


async def measure_in(folder: Path, turns: int) -> list[Goal]:
    config, model = folder / "everturn.toml", Model()
    async with _serve(model) as port:
        bundles = "".join(f'[bundles.{codec}.react]\ncodec = "{codec}"\n' for codec in sorted(set(CODECS.values())))
        config.write_text(
            f'[models.endpoints.bench]\nprotocol = "openai"\nbase_url = "http://127.0.0.1:{port}/v1"\n'
            f'[models.roles]\ntitle = "offline"\nsummary = "offline"\n{bundles}'
        )
        env = {"EVERTURN_MODEL": "bench:m", "EVERTURN_CONFIG": str(config)}
        async with Platform(folder / "home", env=env, workers=1) as platform, asyncio.timeout(2 * LIMIT_S):
            waits = {codec: await _measure_waits(platform, model, codec, turns) for codec in REPLIES}
    return [
        build_goal(f"P19 first word after it was written, {codec}, ms", statistics.median(waits_ms), GOAL_MS, 1.0)
        for codec, waits_ms in waits.items()
    ]


async def _measure_waits(platform: Platform, model: Model, codec: str, turns: int) -> list[float]:
    client, waits_ms = FirstWordClient(platform.urls[0], codec), list[float]()
    await client.open()
    for _ in range(WARMUPS + turns):
        client.first_s = 0.0
        await client.run_turn()
        waits_ms.append(1e3 * (client.first_s - model.first_s))
    await client.close()
    return waits_ms[WARMUPS:]


@asynccontextmanager
async def _serve(model: Model) -> AsyncGenerator[int]:
    app = Starlette(routes=[Route("/v1/chat/completions", model.answer, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    running = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(START_LIMIT_S):
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await running


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, turns=20))
