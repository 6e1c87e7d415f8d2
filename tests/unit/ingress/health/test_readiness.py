"""Readiness, part by part."""

import asyncio

from everturn.errors import Unavailable
from ingress.health import readiness
from ingress.health.readiness import Part, check_parts


async def fine() -> None:
    return None


async def broken() -> None:
    raise Unavailable("down")


async def test_all_parts_fine_is_ready() -> None:
    found = await check_parts({"postgres": Part(fine), "antivirus": Part(fine, required=False, note="not scanned")})

    assert found.status == "ready"
    assert found.parts["antivirus"].detail == "not scanned"


async def test_a_missing_required_part_is_unready_and_another_one_degraded() -> None:
    unready = await check_parts({"postgres": Part(broken), "antivirus": Part(broken, required=False)})
    degraded = await check_parts({"postgres": Part(fine), "antivirus": Part(broken, required=False)})

    assert unready.status == "unready"
    assert degraded.status == "degraded"
    assert "down" in degraded.parts["antivirus"].detail


async def test_a_part_that_hangs_counts_as_missing() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    async with asyncio.timeout(readiness.CHECK_TIMEOUT_S + 2):
        found = await check_parts({"redis": Part(hang)})

    assert found.status == "unready"
    assert "no answer" in found.parts["redis"].detail
