"""Seeded random schedules of messages, signals, kills, stops and broken links; each ends in the history checker.

`make chaos` plays 50 fresh ones beside two processes that keep the machine busy; `make chaos SEEDS=7,19` plays these
two again, and `BUSY=0` plays them on a quiet machine.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator

import pytest
from faults.chaos import Chaos
from schedules.player import Player
from schedules.steps import build_schedule

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

FIXED_SEEDS = (3, 21)


def load_seeds() -> list[int]:
    """CHAOS_SEEDS is a count of fresh seeds, or seeds with commas: `50`, `7,19`, `7,`."""
    setting = os.environ.get("CHAOS_SEEDS", "")
    if not setting:
        return list(FIXED_SEEDS)
    if "," not in setting:
        return random.sample(range(1_000_000), int(setting))
    return [int(seed) for seed in setting.split(",") if seed.strip()]


@pytest.fixture(scope="module", autouse=True)
def busy_machine() -> Iterator[None]:
    """CHAOS_BUSY processes that compute for nothing: races that a quiet machine hides show beside them."""
    count = int(os.environ.get("CHAOS_BUSY", "0"))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.mark.parametrize("seed", load_seeds())
async def test_a_random_schedule_loses_nothing_and_doubles_nothing(chaos: Chaos, seed: int) -> None:
    schedule = build_schedule(seed)
    print(f"\nseed {seed}")  # noqa: T201 a failed schedule must be seen; pytest shows it then
    for timed in schedule:
        print(f"  +{timed.after_s:.3f} s {timed.step}")  # noqa: T201

    player = Player(chaos.harness, chaos.links, seed)
    chaos.platform.auto_restart = True
    try:
        await player.run(schedule)
    finally:
        print(f"  answers: {dict(player.answers)}")  # noqa: T201
        chaos.links.heal()
        await chaos.harness.close()
