"""docs/operate.md: its example of an installation is what bench/sizing.py computes from the costs on the page."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

REPOSITORY = Path(__file__).resolve().parents[2]
OPERATE = REPOSITORY / "docs" / "operate.md"
COLUMNS = ("worker", "encoder", "ingress", "postgres", "redis")


def load_bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sizing", REPOSITORY / "bench" / "sizing.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["sizing"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_row(start: str) -> list[str]:
    """The cells behind the first one of the only row that begins like this."""
    [line] = [line for line in OPERATE.read_text().splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def read_costs(start: str) -> dict[str, float]:
    """By part, the first number of each cell that has one."""
    found = ((name, re.search(r"[\d,.]+", cell)) for name, cell in zip(COLUMNS, read_row(start), strict=True))
    return {name: float(number[0].replace(",", "")) for name, number in found if number}


def test_the_example_of_the_operators_page_is_what_the_bench_computes_from_its_costs() -> None:
    bench, stored = load_bench(), read_costs("a turn of 200 tokens, in conversations")
    [wal] = re.findall(r"([\d,]+) of WAL", read_row("a turn of 200 tokens, in conversations")[3])
    [objects] = re.findall(r"one manifest of ([\d,]+) bytes", OPERATE.read_text())
    costs = bench.Costs(
        idle_cpu_percent={},
        turn_cpu_ms=read_costs("a turn of 200 tokens that come at once"),
        token_cpu_us=read_costs("each token that comes by itself"),
        memory_mib=read_costs("an idle process"),
        stream_kib=read_costs("an idle event stream")["ingress"],
        postgres_rows=0.0,
        postgres_bytes=stored["postgres"],
        wal_bytes=float(wal.replace(",", "")),
        commits=0.0,
        objects=1.0,
        object_bytes=float(objects.replace(",", "")),
        redis_bytes=stored["redis"],
    )
    numbers = read_row("what | computed | N =")[1]
    assert numbers == "N = 200,000, T = 500, S = 16, M = 1,000"
    plan = bench.build_plan(costs, turns_a_day=200_000, tokens=500, slots=16, streams=1000)

    assert [read_row(start)[-1] for start in ("turns per second", "turns that run at once", "cores for workers")] == [
        f"{plan.turns_per_s:.1f}",
        f"{plan.running_turns:.0f}",
        f"{plan.worker_cores:.1f}",
    ]
    assert [read_row(start)[-1] for start in ("workers, at least", "ingresses, at least", "connections to")] == [
        str(number) for number in (plan.workers, plan.ingresses, plan.connections)
    ]
    assert read_row("cores for ingresses")[-1] == f"{plan.ingress_cores:.1f}"
    assert read_row("cores for Postgres")[-1] == f"{plan.postgres_cores:.1f}, {plan.redis_cores:.1f}"
    assert read_row("memory of Redis for events")[-1] == f"{plan.redis_mib:.0f} MiB"
    assert [read_row(start)[-1] for start in ("Postgres | N", "its write-ahead log", "object store | N")] == [
        f"{size:.1f} GiB a day" for size in (plan.postgres_gib_a_day, plan.wal_gib_a_day, plan.objects_gib_a_day)
    ]
