"""P17: one worker that streams 200 replies at the speed of real models, 50 tokens a second each, at the same time.

The delay of a token is from the moment at which the worker gives its event a time to its arrival at the client. Needs
nothing running: it starts its own platform, with one ingress and one worker, in a folder that it removes.
"""

import asyncio
import re
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from helpers.goals import Goal, build_goal, run_goals
from helpers.whole_turns import LIMIT_S, TOKENS, PlatformClient, build_script, load_cpu

from everturn_local.supervision.platform import Platform

PAUSE_MS = 20
_DELTA = re.compile(rb'"type":"chat.delta","ts":"([^"]+)"')


class TimedClient(PlatformClient):
    """Notes how late each event with text arrives, in milliseconds."""

    def __init__(self, url: str, user: str) -> None:
        super().__init__(url, user)
        self.delays_ms: list[float] = []

    def note(self, data: bytes) -> None:
        now_s = time.time()
        for found in _DELTA.finditer(data):
            self.delays_ms.append(1e3 * (now_s - datetime.fromisoformat(found[1].decode()).timestamp()))


def measure(streams: int) -> list[Goal]:
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder:
        return asyncio.run(measure_in(Path(folder), streams))


async def measure_in(folder: Path, streams: int) -> list[Goal]:
    script = folder / "script.toml"
    script.write_text(build_script(pause_ms=PAUSE_MS))
    env = {"EVERTURN_MODEL": f"scripted:{script}", "WORKER_SLOTS": str(streams)}
    async with Platform(folder / "home", env=env, workers=1) as platform, asyncio.timeout(2 * LIMIT_S):
        clients = [TimedClient(platform.urls[0], f"user-{n}") for n in range(streams)]
        for client in clients:
            await client.open()
        await clients[0].run_turn()
        clients[0].delays_ms.clear()
        began_s, before = time.perf_counter(), load_cpu(platform)
        turns = await asyncio.gather(*(client.run_turn() for client in clients))
        took_s, after = time.perf_counter() - began_s, load_cpu(platform)
        for client in clients:
            await client.close()
    busy = {part: 100 * (seconds - before[part]) / took_s for part, seconds in after.items()}
    delays_ms = sorted(each for client in clients for each in client.delays_ms)
    late_ms, speed = delays_ms[int(0.99 * len(delays_ms))], 1000 / PAUSE_MS
    speeds = [(TOKENS - 1) / (turn.tokens_s[-1] - turn.tokens_s[0]) for turn in turns]
    load = f"of {streams} streams of {speed:g} tokens/s"
    return [
        build_goal(f"P17 CPU of the worker vs its goal, {load}, %", busy["worker"], 80.0, 1.0),
        build_goal(f"P17 delay of a token vs its goal, p99, {load}, ms", late_ms, 30.0, 1.0),
        build_goal(f"speed of one stream vs that of its model, {load}, tokens/s", statistics.median(speeds), speed),
        build_goal(f"CPU of the ingress, {load}, %", busy["ingress"], 80.0),
    ]


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, streams=200))
