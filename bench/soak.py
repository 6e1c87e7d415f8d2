"""Soak: an hour of turns at half of the rate that the machine can do, and what has changed between its parts.

Clients take turns of 200 tokens from an instant model, with memory search, and begin a new conversation after 20. The
last third of the time is compared with the second; the first warms up. `make bench` leaves this script out, because it
takes so long. Needs nothing running: it starts its own platform, with one ingress and two workers, in a folder that it
removes.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helpers.goals import Goal, build_goal, run_goals
from helpers.whole_turns import PlatformClient, build_script, drive, is_encoder, load_cpu, wait_until_idle

from everturn_local.supervision.platform import Platform

CLIENTS = 10
TURNS_PER_CONVERSATION = 20
CALIBRATION_TURNS = 400
SHARE = 0.5
SAMPLE_S = 10.0
_PARTS = {"redis": "Redis", "ingress": "the ingress", "worker": "the workers"}
_ENCODERS = "the encoders"
MAX_GROWTH = 1.1
MAX_REDIS_GROWTH = 1.25
"""Redis keeps the emptied stream of a conversation for an hour after its last event, so in the first hour it grows."""
MAX_SLOWDOWN = 1.2


@dataclass(slots=True)
class Third:
    """What was measured in a third of the time."""

    durations_s: list[float] = field(default_factory=list[float])
    memory_mib: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    disk_bytes: list[int] = field(default_factory=list[int])
    cpu_s: list[float] = field(default_factory=list[float])
    turns_at: list[int] = field(default_factory=list[int])
    """Turns that had ended when each of the sizes was measured."""

    def per_turn(self, totals: list[int] | list[float]) -> float:
        return (totals[-1] - totals[0]) / (self.turns_at[-1] - self.turns_at[0])


def measure(minutes: int) -> list[Goal]:
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder:
        return asyncio.run(measure_in(Path(folder), minutes))


async def measure_in(folder: Path, minutes: int) -> list[Goal]:
    script = folder / "script.toml"
    script.write_text(build_script())
    env = {"EVERTURN_MODEL": f"scripted:{script}", "WORKER_SLOTS": "16"}
    async with Platform(folder / "home", env=env, workers=2) as platform:
        began_s = time.perf_counter()
        await drive([PlatformClient(platform.urls[0], f"early-{n}") for n in range(CLIENTS)], CALIBRATION_TURNS)
        # What is indexed after the turns is a part of what they cost.
        await wait_until_idle(platform)
        rate = SHARE * CALIBRATION_TURNS / (time.perf_counter() - began_s)
        print(f"{rate:.1f} turns/s for {minutes} minutes", file=sys.stderr)
        thirds = [Third(), Third(), Third()]
        await soak(platform, rate, 60.0 * minutes, thirds)
    _, middle, last = thirds
    return [
        *(
            build_goal(
                f"memory of {part}, last third vs second, MiB",
                statistics.mean(last.memory_mib[part]),
                statistics.mean(middle.memory_mib[part]),
                MAX_REDIS_GROWTH if part == "Redis" else MAX_GROWTH,
            )
            for part in middle.memory_mib
        ),
        build_goal(
            "disk per turn, last third vs second, kB",
            last.per_turn(last.disk_bytes) / 1e3,
            middle.per_turn(middle.disk_bytes) / 1e3,
            MAX_GROWTH,
        ),
        build_goal(
            "CPU per turn, last third vs second, ms",
            1e3 * last.per_turn(last.cpu_s),
            1e3 * middle.per_turn(middle.cpu_s),
            MAX_SLOWDOWN,
        ),
        *(
            build_goal(f"{name} of a turn, last third vs second, ms", 1e3 * late, 1e3 * early, MAX_SLOWDOWN)
            for name, late, early in zip(
                ("median", "p95"), read_durations(last.durations_s), read_durations(middle.durations_s), strict=True
            )
        ),
    ]


def read_durations(durations_s: list[float]) -> tuple[float, float]:
    """Median and 95th percentile."""
    return statistics.median(durations_s), statistics.quantiles(durations_s, n=20)[-1]


async def soak(platform: Platform, rate: float, lasts_s: float, thirds: list[Third]) -> None:
    began_s = time.perf_counter()
    ended = 0

    def current() -> Third:
        return thirds[min(2, int(3 * (time.perf_counter() - began_s) / lasts_s))]

    async def take_turns(number: int) -> None:
        nonlocal ended
        due_s = began_s + number / rate
        while due_s < began_s + lasts_s:
            client = PlatformClient(platform.urls[0], f"user-{number}")
            await client.open()
            for _ in range(TURNS_PER_CONVERSATION):
                await asyncio.sleep(due_s - time.perf_counter())
                current().durations_s.append((await client.run_turn()).ended_s)
                ended += 1
                due_s += CLIENTS / rate
            await client.close()

    async def sample() -> None:
        while True:
            memory, disk = await asyncio.gather(
                asyncio.to_thread(load_memory_mib, platform), asyncio.to_thread(load_disk_bytes, platform)
            )
            third = current()
            for part, mib in memory.items():
                third.memory_mib.setdefault(part, []).append(mib)
            third.disk_bytes.append(disk)
            third.cpu_s.append(sum(load_cpu(platform).values()))
            third.turns_at.append(ended)
            await asyncio.sleep(SAMPLE_S)

    sampling = asyncio.create_task(sample())
    await asyncio.gather(*(take_turns(number) for number in range(CLIENTS)))
    sampling.cancel()
    await asyncio.wait([sampling])


def load_memory_mib(platform: Platform) -> Mapping[str, float]:
    """Of the services, their encoders and Redis. Postgres fills its shared buffers, whatever it is asked."""
    sums: dict[str, float] = {}
    encoders = {int(each.name): _ENCODERS for each in Path("/proc").glob("[0-9]*") if is_encoder(int(each.name))}
    services = {platform.pid(name): _PARTS[name.partition("-")[0]] for name in ("redis", *platform.reports)}
    for pid, part in (services | encoders).items():
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:  # a fork of the encoder has ended
            continue
        fields = dict(line.split(":", 1) for line in rollup.splitlines()[1:])
        sums[part] = sums.get(part, 0.0) + int(fields["Pss"].split()[0]) / 1024
    return sums


def load_disk_bytes(platform: Platform) -> int:
    """Of the database, without its log, and of the object store."""
    database = int(platform.postgres.run_sql("SELECT pg_database_size('everturn')"))
    return database + sum(file.stat().st_size for file in platform.home.objects.rglob("*") if file.is_file())


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, minutes=60))
