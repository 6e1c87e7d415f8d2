"""F23: a disk is full while turns run, and has space again later.

New work is refused, what was accepted is finished once there is space, and nothing needs a restart by hand.
`make failover TURNS=200 SEED=1` plays it with so many turns.
"""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import httpx2
import pytest
from faults.chaos import Chaos, check_refused
from faults.disks import SmallDisksPlatform
from faults.load import PATIENT, SLOTS, TURNS, Load
from helpers.forks import INGRESS_BOUNDS

from everturn_local.servers.postgres import SqlError

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(200 + 3 * TURNS),
]

PLATFORM = SmallDisksPlatform
EXTRA_ENV = {"WORKER_SLOTS": str(SLOTS), "QUEUE_MAX": str(100 * TURNS), INGRESS_BOUNDS: "{}"}
TIMINGS = PATIENT
FULL_S = 20.0
"""Longer than a turn would have if each worker that can't commit counted as one that it killed: three leases of 3 s,
and the pauses between."""
WAL = "postgres/data/pg_wal"
SEGMENTS = 10
"""More than fit on the disk of the WAL."""
NAMED = {"postgres": "postgres_disk", WAL: "postgres", "redis": "redis", "objects": "objects"}
"""By disk: what `/readyz` says has failed. Turns don't need the others."""
COUNTED = {"postgres_disk", "objects"}
"""What `everturn_disk_full_total` counts."""
TEXTS = {"tmp": ("script:program please", *["script:brisk please"] * 3)}
"""Few programs at once: more of them than a machine has cores keep the workers from renewing their leases."""
WRITES = ("script:write please", "script:brisk please")


@pytest.mark.parametrize("disk", [*NAMED, "logs", "tmp"])
async def test_turns_survive_a_full_disk(chaos: Chaos, tmp_path: Path, disk: str) -> None:
    platform, note = chaos.platform, tmp_path / "note.md"
    assert isinstance(platform, SmallDisksPlatform)
    note.write_text("# A note of a person\n")
    load = Load(chaos.harness, texts=TEXTS.get(disk, WRITES), files=[note])
    await load.start()

    load.disturb()
    await asyncio.sleep(load.dice.random())
    broken_at = time.monotonic()
    with platform.disks[disk].filled():
        if disk == WAL:
            await use_up_segments(platform)
        answers: list[httpx2.Response] = []
        while time.monotonic() < broken_at + FULL_S:
            answers.append(await chaos.send_file())
            await asyncio.sleep(load.dice.random())
        failed, metrics = await load_failed(chaos), await load_metrics(chaos)
    repaired_at = time.monotonic()
    await load.check(others={answer.json()["turn_id"] for answer in answers if answer.status_code == 202})

    refused = [answer for answer in answers if answer.status_code != 202]
    assert bool(refused) == (disk in NAMED)
    for answer in refused:
        check_refused(answer)
    assert NAMED.get(disk) in failed or disk not in NAMED
    counted = {part for part in COUNTED if metrics.get(f'everturn_disk_full_total{{part="{part}"}}')}
    assert counted >= {NAMED.get(disk)} & COUNTED
    assert metrics["everturn_log_lines_lost_total"] or disk != "logs"
    load.report(f"the disk of {disk} full", broken_at, repaired_at)
    await chaos.harness.close()


async def use_up_segments(platform: SmallDisksPlatform) -> None:
    """Until Postgres needs another one, finds no room for it, and crashes."""
    for _ in range(SEGMENTS):
        try:
            await asyncio.to_thread(platform.postgres.run_sql, "SELECT pg_switch_wal(), txid_current()")
        except SqlError:
            return


async def load_failed(chaos: Chaos) -> set[str]:
    async with chaos.open_http() as http:
        parts = (await http.get("/readyz")).json()["parts"]
    return {name for name, part in parts.items() if not part["ok"]}


async def load_metrics(chaos: Chaos) -> Mapping[str, float]:
    """Of the ingress that was sent the messages."""
    async with chaos.open_http() as http:
        lines = (await http.get("/metrics")).text.splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}
