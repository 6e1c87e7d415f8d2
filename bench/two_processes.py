"""P18: what a turn costs with two ingresses and two workers against one of each, in CPU of the ingresses and workers.

Two processes do 1.7 times the turns of one only if a turn costs at most 2 / 1.7 = 1.18 times as much CPU with them.
That is measured instead of turns a second, because on a machine with two cores the clients and servers need the second
one. Ingresses have a port each, as behind a proxy that spreads the clients. Two platforms take turns of 200 tokens from
an instant model at the same time, so that a busy machine slows both alike, with ten clients for each ingress. Needs
nothing running: it starts its own servers in folders that it removes.
"""

import asyncio
import itertools
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from helpers.goals import Goal, build_goal, run_goals
from helpers.whole_turns import PlatformClient, build_script, drive, load_cpu, wait_until_idle

from everturn_local.supervision.platform import Platform

TWO = 2
CLIENTS = 10
"""Of each ingress."""
MAX_RATIO = 1.18


def measure(blocks: int, turns: int) -> list[Goal]:
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder:
        return asyncio.run(measure_in(Path(folder), blocks, turns))


async def measure_in(folder: Path, blocks: int, turns: int) -> list[Goal]:
    script = folder / "script.toml"
    script.write_text(build_script())
    # The local encoder is a process beside each worker, and would take most of the machine.
    env = {"EVERTURN_MODEL": f"scripted:{script}", "WORKER_SLOTS": "16", "EMBEDDER": "hashed"}
    spent: dict[int, Counter[str]] = {1: Counter(), TWO: Counter()}
    async with AsyncExitStack() as stack:
        platforms = {
            count: await stack.enter_async_context(
                Platform(folder / str(count), env=env, ingresses=count, workers=count, durable=False)
            )
            for count in spent
        }
        for block in range(blocks + 1):
            before = {count: load_cpu(platform) for count, platform in platforms.items()}
            await asyncio.gather(*(take_turns(platform, count, turns) for count, platform in platforms.items()))
            for platform in platforms.values():
                await wait_until_idle(platform)
            if block == 0:
                continue
            for count, platform in platforms.items():
                spent[count].update({part: s - before[count][part] for part, s in load_cpu(platform).items()})
    measured = blocks * turns
    ms = {count: {part: 1e3 * seconds / measured / count for part, seconds in s.items()} for count, s in spent.items()}
    return [
        *(
            build_goal(
                f"P18 CPU of a turn in two {part} processes vs in one, ms", ms[TWO][part], ms[1][part], MAX_RATIO
            )
            for part in ("ingress", "worker")
        ),
        *(build_goal(f"CPU of it in {part}, ms", ms[TWO][part], ms[1][part]) for part in ("postgres", "redis")),
    ]


async def take_turns(platform: Platform, count: int, turns: int) -> None:
    """So many turns for each process."""
    urls = itertools.cycle(platform.urls)
    await drive([PlatformClient(next(urls), f"user-{n}") for n in range(count * CLIENTS)], count * turns)


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, blocks=2, turns=60))
