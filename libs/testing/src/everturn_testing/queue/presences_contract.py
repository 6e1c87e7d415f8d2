"""The contract of Presences as tests; a subclass or its module defines the fixture `presences`."""

import asyncio
from dataclasses import replace

from everturn.queue.model import MAX_WORKERS, BatteryOutcome, Presences, WorkerPresence

_LIMIT_S = 10.0
_TTL_S = 600.0
_ONE = WorkerPresence("b", "containers", BatteryOutcome(12, 13, 1000.5), 4)


class PresencesContract:
    """Required of every Presences."""

    async def test_workers_are_listed_by_id_with_their_reports(self, presences: Presences) -> None:
        other = WorkerPresence("a", "", None, 1)
        await presences.save(_ONE, ttl_s=_TTL_S)
        await presences.save(other, ttl_s=_TTL_S)

        assert await presences.load_all() == (other, _ONE)

    async def test_a_later_report_of_a_worker_replaces_the_earlier_one(self, presences: Presences) -> None:
        await presences.save(_ONE, ttl_s=_TTL_S)
        await presences.save(replace(_ONE, slots=9), ttl_s=_TTL_S)

        assert await presences.load_all() == (replace(_ONE, slots=9),)

    async def test_a_silent_worker_expires_and_others_do_not(self, presences: Presences) -> None:
        stays = replace(_ONE, worker_id="c")
        await presences.save(stays, ttl_s=_TTL_S)
        await presences.save(_ONE, ttl_s=0.02)

        async with asyncio.timeout(_LIMIT_S):
            while _ONE in await presences.load_all():  # noqa: ASYNC110 - only Redis knows when it forgets
                await asyncio.sleep(0.01)

        assert await presences.load_all() == (stays,)

    async def test_only_the_latest_workers_are_listed(self, presences: Presences) -> None:
        for number in range(MAX_WORKERS + 1):
            await presences.save(replace(_ONE, worker_id=f"{number:04}"), ttl_s=_TTL_S)

        found = await presences.load_all()

        assert [one.worker_id for one in found] == [f"{number:04}" for number in range(1, MAX_WORKERS + 1)]

    async def test_without_workers_the_list_is_empty(self, presences: Presences) -> None:
        assert await presences.load_all() == ()
