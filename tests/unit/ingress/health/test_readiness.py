"""Readiness, part by part."""

import asyncio

from everturn.core.errors import Unavailable
from everturn.core.readiness import Part
from everturn.queue.model import BatteryOutcome, WorkerPresence
from everturn_testing.queue.presences import MemoryPresences
from ingress import health as readiness
from ingress.health import check_parts


async def fine() -> None:
    return None


async def broken() -> None:
    raise Unavailable("down")


async def test_all_parts_fine_is_ready() -> None:
    found = await check_parts(
        {"postgres": Part(fine), "antivirus": Part(fine, required=False, note="not scanned")}, MemoryPresences()
    )

    assert found.status == "ready"
    assert found.parts["antivirus"].detail == "not scanned"


async def test_a_missing_required_part_is_unready_and_another_one_degraded() -> None:
    unready = await check_parts(
        {"postgres": Part(broken), "antivirus": Part(broken, required=False)}, MemoryPresences()
    )
    degraded = await check_parts({"postgres": Part(fine), "antivirus": Part(broken, required=False)}, MemoryPresences())

    assert unready.status == "unready"
    assert degraded.status == "degraded"
    assert "down" in degraded.parts["antivirus"].detail


async def test_a_part_that_hangs_counts_as_missing() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    async with asyncio.timeout(readiness.CHECK_TIMEOUT_S + 2):
        found = await check_parts({"redis": Part(hang)}, MemoryPresences())

    assert found.status == "unready"
    assert "no answer" in found.parts["redis"].detail


async def test_workers_are_listed_with_the_result_of_the_escape_tests() -> None:
    presences = MemoryPresences()
    await presences.save(WorkerPresence("b", "", None, 1), ttl_s=600)
    await presences.save(WorkerPresence("a", "containers", BatteryOutcome(12, 12, 1000.0), 4), ttl_s=600)

    found = await check_parts({"postgres": Part(fine)}, presences)

    assert found.model_dump()["workers"] == [
        {"id": "a", "sandbox": "containers", "battery": {"held": 12, "total": 12, "at": 1000.0}, "slots": 4},
        {"id": "b", "sandbox": "", "battery": "not run", "slots": 1},
    ]


async def test_it_is_ready_without_workers_and_unknown_workers_are_null() -> None:
    presences = MemoryPresences()

    nobody = await check_parts({"postgres": Part(fine)}, presences)
    presences.down = True
    unknown = await check_parts({"postgres": Part(fine)}, presences)

    assert (nobody.status, nobody.workers) == ("ready", [])
    assert (unknown.status, unknown.workers) == ("ready", None)
