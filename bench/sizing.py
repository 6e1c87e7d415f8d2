"""Sizing: what a turn, a streamed token and an idle stream cost, and from it what an installation of a size needs.

Turns of 200 tokens from an instant model give the cost of a turn; the same turns at the speed of real models give what
a token adds. CPU is user and system time, so other work on the machine matters little. The plan is computed from these
figures: nothing of its size was tried. Needs nothing running: it starts its own platform, with one ingress and two
workers, in a folder that it removes.
"""

import argparse
import asyncio
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from helpers.followers import HELLO_SCRIPT, Followers, allow_files, hold_conversation, measure_memory, spawn_wide
from helpers.whole_turns import TOKENS, PlatformClient, build_script, drive, is_encoder, load_cpu, wait_until_idle
from redis import Redis

from everturn_client.client import EverturnClient
from everturn_local.supervision.platform import Platform

CLIENTS = 10
PAUSE_MS = 20
SPEED = 1000 / PAUSE_MS
"""Tokens a second of one paced answer."""
SLOTS = 16
PARTS = ("worker", "ingress", "postgres", "redis", "encoder")
BUSIEST_HOUR = 0.15
"""Its share of the turns of a day."""
FULL = 0.6
"""Of a core that is busy: above it, turns wait for each other."""
STREAMS_OF_INGRESS = 2000
"""As the autoscaler of deploy/k8s/components/keda."""
INGRESS_CONNECTIONS, OTHER_CONNECTIONS = 16, 10
ROLLOUT = 2
"""How many times as many workers and ingresses there may be during a rollout: a new one starts when an old one begins
to drain, which takes longer than the start, so all old ones may drain at once."""
MIN_CONNECTIONS, MAX_CONNECTIONS = 8, 100
"""Of a worker, which opens two for each slot."""
IDLE_S = 10.0
"""How long the idle platform is watched; what it then uses is subtracted from what turns cost."""
REDIS_KEPT_S = 60
"""How long Redis keeps the events of a turn that has ended."""
OPEN_FILES = 4096


class PacedClient(PlatformClient):
    message = b'{"text":"paced"}'


@dataclass(frozen=True, slots=True)
class Costs:
    """Each figure with its unit in the name; CPU of an idle platform is that of all processes of a part."""

    idle_cpu_percent: Mapping[str, float]
    turn_cpu_ms: Mapping[str, float]
    token_cpu_us: Mapping[str, float]
    memory_mib: Mapping[str, float]
    stream_kib: float
    postgres_rows: float
    postgres_bytes: float
    wal_bytes: float
    commits: float
    objects: float
    object_bytes: float
    redis_bytes: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What an installation needs in its busiest hour, and how much a day adds to its disks."""

    turns_per_s: float
    running_turns: float
    streams: int
    workers: int
    ingresses: int
    worker_cores: float
    ingress_cores: float
    postgres_cores: float
    redis_cores: float
    connections: int
    redis_mib: float
    ingress_mib: float
    postgres_gib_a_day: float
    wal_gib_a_day: float
    objects_gib_a_day: float


def build_plan(costs: Costs, *, turns_a_day: int, streams: int, tokens: int, slots: int) -> Plan:
    """`streams` are open at once, whether or not their turns run; an answer has `tokens`."""
    rate = turns_a_day * BUSIEST_HOUR / 3600
    running = rate * tokens / SPEED
    used = {name: rate * (costs.turn_cpu_ms[name] / 1e3 + tokens * costs.token_cpu_us[name] / 1e6) for name in PARTS}
    worker_cores = used["worker"] + used["encoder"]
    workers = max(2, math.ceil(worker_cores / FULL), math.ceil(running / slots))
    ingresses = max(2, math.ceil(used["ingress"] / FULL), math.ceil(streams / STREAMS_OF_INGRESS))
    of_worker = min(MAX_CONNECTIONS, max(MIN_CONNECTIONS, 2 * slots))
    gib = turns_a_day / 2**30
    return Plan(
        turns_per_s=rate,
        running_turns=running,
        streams=streams,
        workers=workers,
        ingresses=ingresses,
        worker_cores=worker_cores,
        ingress_cores=used["ingress"],
        postgres_cores=used["postgres"],
        redis_cores=used["redis"],
        connections=ROLLOUT * (INGRESS_CONNECTIONS * ingresses + of_worker * workers) + OTHER_CONNECTIONS,
        redis_mib=rate * (REDIS_KEPT_S + tokens / SPEED) * costs.redis_bytes * tokens / TOKENS / 2**20,
        ingress_mib=costs.memory_mib["ingress"] + costs.stream_kib * streams / ingresses / 1024,
        postgres_gib_a_day=gib * costs.postgres_bytes,
        wal_gib_a_day=gib * costs.wal_bytes,
        objects_gib_a_day=gib * costs.object_bytes,
    )


async def measure(folder: Path, *, turns: int, streams: int) -> Costs:
    script = folder / "script.toml"
    paced = build_script(pause_ms=PAUSE_MS).replace('when = ""', 'when = "paced"')
    script.write_text(paced + HELLO_SCRIPT.replace('when = ""', 'when = "Hello."') + build_script())
    env = {"EVERTURN_MODEL": f"scripted:{script}", "WORKER_SLOTS": str(SLOTS)}
    async with Platform(folder / "home", env=env, workers=2, spawn=spawn_wide) as platform:
        url = platform.urls[0]
        # The first turns load what stays loaded.
        await drive([PlatformClient(url, f"early-{n}") for n in range(CLIENTS)], 2 * CLIENTS)
        await wait_until_idle(platform)
        meter = Meter(platform)
        await asyncio.sleep(IDLE_S)
        idle = {name: max(0.0, used_s) / IDLE_S for name, used_s in meter.read().items()}
        before, meter, taken = load_stored(platform), Meter(platform, idle), turns + 1
        await drive([PlatformClient(url, f"user-{n}") for n in range(CLIENTS)], turns)
        redis_bytes = load_redis_bytes(platform) - before["redis"]
        await wait_until_idle(platform)
        after, memory = load_stored(platform), load_memory_mib(platform)
        turn_s = {name: used_s / taken for name, used_s in meter.read().items()}
        meter, paced = Meter(platform, idle), 4 * CLIENTS
        await drive([PacedClient(url, f"paced-{n}") for n in range(2 * CLIENTS)], paced)
        await wait_until_idle(platform)
        paced_s = {name: used_s / (paced + 1) for name, used_s in meter.read().items()}
        stream_kib = await measure_stream(platform, streams)
    stored = {name: (after[name] - before[name]) / taken for name in before}
    return Costs(
        idle_cpu_percent={name: 100 * share for name, share in idle.items()},
        turn_cpu_ms={name: 1e3 * turn_s[name] for name in PARTS},
        # The encoder works after the turn, whatever its speed.
        token_cpu_us={
            name: 0.0 if name == "encoder" else 1e6 * max(0.0, paced_s[name] - turn_s[name]) / TOKENS for name in PARTS
        },
        memory_mib=memory,
        stream_kib=stream_kib,
        postgres_rows=stored["rows"],
        postgres_bytes=stored["database"],
        wal_bytes=stored["wal"],
        commits=stored["commits"],
        objects=stored["objects"],
        object_bytes=stored["object_bytes"],
        redis_bytes=redis_bytes / taken,
    )


class Meter:
    """CPU seconds of each part since it was made, without what an idle platform uses in that time."""

    def __init__(self, platform: Platform, idle: Mapping[str, float] | None = None) -> None:
        self._platform = platform
        self._idle = idle or dict.fromkeys(PARTS, 0.0)
        self._before, self._since_s = load_cpu(platform), time.monotonic()

    def read(self) -> dict[str, float]:
        now, took_s = load_cpu(self._platform), time.monotonic() - self._since_s
        return {name: now[name] - self._before[name] - self._idle[name] * took_s for name in PARTS}


async def measure_stream(platform: Platform, count: int) -> float:
    """KiB that an ingress takes for one more idle stream."""
    pid = platform.pid("ingress-1")
    assert pid is not None
    async with EverturnClient(platform.urls[0]) as client:
        followers = Followers(platform.urls[0], *await hold_conversation(client))
        try:
            return (await measure_memory(pid, followers.open_streams, count)).each_kib
        finally:
            await followers.close()


def load_stored(platform: Platform) -> dict[str, float]:
    """Totals so far, by what they count."""
    sizes = [file.stat().st_size for file in platform.home.objects.rglob("*") if file.is_file()]
    row = platform.postgres.run_sql(
        "SELECT pg_database_size('everturn') || ' ' || pg_current_wal_lsn() - '0/0'::pg_lsn"
        " || ' ' || xact_commit || ' ' || tup_inserted FROM pg_stat_database WHERE datname = 'everturn'"
    )
    database, wal, commits, rows = map(float, row.split()[-4:])
    return {
        "database": database,
        "wal": wal,
        "commits": commits,
        "rows": rows,
        "objects": len(sizes),
        "object_bytes": sum(sizes),
        "redis": load_redis_bytes(platform),
    }


def load_redis_bytes(platform: Platform) -> float:
    with Redis.from_url(platform.redis.url) as client:
        return float(client.info("memory")["used_memory"])  # type: ignore[index]


def load_memory_mib(platform: Platform) -> dict[str, float]:
    """What one process of a kind has for itself after its turns, with its share of what it shares."""
    found: dict[str, list[float]] = {"ingress": [], "worker": [], "encoder": []}
    pids = {int(each.name): "encoder" for each in Path("/proc").glob("[0-9]*") if is_encoder(int(each.name))}
    pids |= {pid: name.partition("-")[0] for name in platform.reports if (pid := platform.pid(name)) is not None}
    for pid, kind in pids.items():
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:  # a fork of the encoder has ended
            continue
        fields = dict(line.split(":", 1) for line in rollup.splitlines()[1:])
        found[kind].append(int(fields["Pss"].split()[0]) / 1024)
    return {kind: sum(sizes) / len(sizes) if sizes else 0.0 for kind, sizes in found.items()}


def render(costs: Costs, plan: Plan) -> str:
    """One line for each figure."""
    lines = ["measured | " + " | ".join(PARTS)]
    for name in ("idle_cpu_percent", "turn_cpu_ms", "token_cpu_us"):
        lines.append(f"{name} | " + " | ".join(f"{getattr(costs, name)[part]:.2f}" for part in PARTS))
    lines += [f"memory_mib of an idle {kind} | {mib:.0f}" for kind, mib in costs.memory_mib.items()]
    singles = {name: value for name, value in asdict(costs).items() if isinstance(value, float)}
    lines += [f"{name} | {value:,.1f}" for name, value in singles.items()]
    lines += ["", "computed | for the busiest hour"]
    return "\n".join([*lines, *(f"{name} | {value:,.4g}" for name, value in asdict(plan).items())])


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    arguments.add_argument("--turns", type=int, default=300, help="to measure (default: %(default)s)")
    arguments.add_argument("--measured-streams", type=int, default=500, help="to measure (default: %(default)s)")
    arguments.add_argument("--turns-a-day", type=int, default=200_000, help="of the plan (default: %(default)s)")
    arguments.add_argument("--streams", type=int, default=1000, help="open at once, of the plan (default: %(default)s)")
    arguments.add_argument("--tokens", type=int, default=500, help="of an answer, of the plan (default: %(default)s)")
    arguments.add_argument("--slots", type=int, default=SLOTS, help="WORKER_SLOTS of the plan (default: %(default)s)")
    chosen = arguments.parse_args()
    allow_files(OPEN_FILES)
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder:
        costs = asyncio.run(measure(Path(folder), turns=chosen.turns, streams=chosen.measured_streams))
    plan = build_plan(
        costs, turns_a_day=chosen.turns_a_day, streams=chosen.streams, tokens=chosen.tokens, slots=chosen.slots
    )
    text = json.dumps({"costs": asdict(costs), "plan": asdict(plan)}) if chosen.json else render(costs, plan)
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
