"""F25: how much longer a light tenant waits beside one that floods, from sending a message to the end of its turn.

Both are on one lane of a real platform: ingress, worker, Postgres, Redis. Turns are scripted and take two seconds. All
are alike, so that slots become free together, just before the light tenant's next turn comes: the worst case. The flood
has ten times as many clients as its tenant has places in the queue; each sends again once its message is accepted, and
a refused client returns at its retry time. Samples with and without the flood alternate in blocks.
At last one user of the heavy tenant holds every slot with turns that make no progress.
Needs nothing running: it starts its own platform in a folder that it removes.
"""

import asyncio
import math
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
from helpers.goals import Goal, build_goal, measure_ms, run_goals

from everturn_client.client import EverturnClient
from everturn_local.supervision.platform import Platform

BLOCKS = 2
"""Of samples of each kind; a busy minute of the machine should hit both."""
PLACES, FLOODING = 60, 600
LIGHT, HEAVY = "light", "heavy"
SLOTS = 4
CONNECTIONS = 20
HOLDING = 12
"""Turns that hold their slot for longer than the measurement; more than there are slots."""
SCRIPT = """
[[scripts]]
when = "Hold."
[[scripts.rounds]]
pause_ms = 600000
reply = "Never said."

[[scripts]]
when = ""
[[scripts.rounds]]
chunk_chars = 16
pause_ms = 200
reply = '''<channel:thinking>Only a short answer is wanted here, and I have it.</channel:thinking>
<channel:action>{"action": "complete", "notes": "", "tool_call": null, "final_answer": "Here."}</channel:action>'''
"""
FULL_LIMIT_S, DRAIN_LIMIT_S = 60.0, 120.0
CHECK_EVERY_S = 0.1
_WAITING = "SELECT count(*) FROM turn WHERE status = 'queued' AND tenant = $1"
_RUNNING = "SELECT count(*) FROM turn WHERE status = 'running' AND tenant = $1"
_OPEN = "SELECT count(*) FROM turn WHERE status IN ('queued', 'running')"


@dataclass(slots=True)
class Replies:
    """How many messages of the flood were accepted and refused."""

    accepted: int = 0
    refused: int = 0


@dataclass(slots=True)
class Times:
    """Milliseconds of the light tenant's turns."""

    alone: list[float] = field(default_factory=list[float])
    beside: list[float] = field(default_factory=list[float])
    held: list[float] = field(default_factory=list[float])


def measure(samples: int, workers: int) -> list[Goal]:
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder:
        return asyncio.run(measure_in(Path(folder), samples, workers))


async def measure_in(folder: Path, samples: int, workers: int) -> list[Goal]:
    script = folder / "script.toml"
    script.write_text(SCRIPT)
    env = {
        "EVERTURN_MODEL": f"scripted:{script}",
        "WORKER_SLOTS": str(SLOTS),
        "QUEUE_MAX": str(2 * PLACES),
    }
    replies, times = Replies(), Times()
    async with (
        Platform(folder / "home", workers=workers, env=env, durable=False) as platform,
        EverturnClient(platform.urls[0], tenant=LIGHT) as light,
    ):
        database = await asyncpg.connect(platform.database.superuser)
        await run_turns(light, 3)
        for _ in range(BLOCKS):
            times.alone += await run_turns(light, samples)
            async with flooding(platform.urls[0], replies):
                await wait_for(database, (_WAITING, HEAVY), least=PLACES // 2, limit_s=FULL_LIMIT_S)
                times.beside += await run_turns(light, samples)
            await wait_for(database, (_OPEN,), most=0, limit_s=DRAIN_LIMIT_S)
        async with EverturnClient(platform.urls[0], tenant=HEAVY) as heavy:
            for _ in range(HOLDING):
                await heavy.send_message("new", "Hold.")
        await wait_for(database, (_RUNNING, HEAVY), least=workers * SLOTS, limit_s=FULL_LIMIT_S)
        times.held += await run_turns(light, samples)
        await database.close()
    of = f"{workers} x {SLOTS} slots; the flood: {replies.accepted} accepted, {replies.refused} refused"
    return [
        build_goal(f"F25 p95 beside a flood vs alone, ms ({of})", p95(times.beside), p95(times.alone), 2.0),
        build_goal("F25 p50 of the same", statistics.median(times.beside), statistics.median(times.alone)),
        build_goal("F25 p95 beside turns that hold every slot vs alone, ms", p95(times.held), p95(times.alone), 2.0),
    ]


async def run_turns(light: EverturnClient, count: int) -> list[float]:
    """Milliseconds of each turn, one after another, each in a conversation of its own."""

    async def run_turn() -> None:
        accepted = await light.send_message("new", "Hello.")
        *_, last = [step async for step in light.follow_turn(accepted.conversation_id, accepted.turn_id)]
        assert last.turn is not None and last.turn.status == "completed"

    return [await measure_ms(run_turn) for _ in range(count)]


@asynccontextmanager
async def flooding(url: str, replies: Replies) -> AsyncGenerator[None]:
    """While it is entered, all clients of the heavy tenant send."""
    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    async with httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False, limits=limits) as http:
        clients = [asyncio.create_task(run_flooder(http, f"user-{n}", replies)) for n in range(FLOODING)]
        try:
            yield
        finally:
            for client in clients:
                client.cancel()
            await asyncio.wait(clients)
    for client in clients:
        if not client.cancelled():
            client.result()


async def run_flooder(http: httpx2.AsyncClient, user: str, replies: Replies) -> None:
    path = f"/conversations/{HEAVY}/default/new/messages"
    while True:
        answer = await http.post(path, json={"text": "More."}, headers={"X-Dev-User": user})
        if answer.status_code == 202:
            replies.accepted += 1
            continue
        assert answer.status_code in {429, 503}, answer.text
        replies.refused += 1
        await asyncio.sleep(int(answer.headers["retry-after"]))


async def wait_for(
    database: asyncpg.Connection, question: tuple[Any, ...], *, least: int = 0, most: float = math.inf, limit_s: float
) -> None:
    """Until the answer to the question is a number between them."""
    async with asyncio.timeout(limit_s):
        while not least <= await database.fetchval(*question) <= most:  # noqa: ASYNC110 - a count
            await asyncio.sleep(CHECK_EVERY_S)


def p95(samples: Sequence[float]) -> float:
    return statistics.quantiles(samples, n=20, method="inclusive")[-1]


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, samples=15, workers=1))
