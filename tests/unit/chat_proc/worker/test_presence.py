"""A worker renews its presence regularly, also after Redis was unavailable or hung."""

import asyncio

from chat_proc.worker.presence import PresenceTask, TurnDurationAverage
from everturn.queue.model import WorkerPresence
from everturn_testing.queue.presences import MemoryPresences

OWN = WorkerPresence("w", "bubblewrap", None, 4)
LIMIT_S = 10


class CountedPresences(MemoryPresences):
    """Counts what it is asked; while `hanging` it never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging = False
        self.ttls_s: list[float] = []
        self.asked = asyncio.Condition()

    async def save(self, presence: WorkerPresence, *, ttl_s: float) -> None:
        async with self.asked:
            self.ttls_s.append(ttl_s)
            self.asked.notify_all()
        if self.hanging:
            await asyncio.Event().wait()
        await super().save(presence, ttl_s=ttl_s)

    async def wait_asked(self, times: int) -> None:
        async with asyncio.timeout(LIMIT_S), self.asked:
            await self.asked.wait_for(lambda: len(self.ttls_s) >= times)


async def test_a_presence_lasts_for_three_renewals() -> None:
    presences = CountedPresences()

    await PresenceTask(presences, OWN, TurnDurationAverage(), every_s=5.0).renew()

    assert await presences.load_all() == (OWN,)
    assert presences.ttls_s == [15.0]


async def test_a_presence_contains_the_average_duration_of_turns() -> None:
    presences, turn_average = CountedPresences(), TurnDurationAverage()
    turn_average.note(12.5)

    await PresenceTask(presences, OWN, turn_average, every_s=5.0).renew()

    assert [reported.turn_s for reported in await presences.load_all()] == [12.5]


async def test_renewals_continue_after_an_outage_or_while_redis_hangs() -> None:
    presences = CountedPresences()
    presences.down = True
    reporting = asyncio.create_task(PresenceTask(presences, OWN, TurnDurationAverage(), every_s=0.01).run())

    await presences.wait_asked(2)
    presences.down, presences.hanging = False, True
    await presences.wait_asked(len(presences.ttls_s) + 2)
    presences.hanging = False
    await presences.wait_asked(len(presences.ttls_s) + 2)

    assert not reporting.done()
    reporting.cancel()
    await asyncio.wait((reporting,), timeout=LIMIT_S)
    assert reporting.cancelled()


async def test_a_worker_knows_the_slots_of_all_workers_and_at_least_its_own() -> None:
    presences = CountedPresences()
    own = WorkerPresence("w", "", None, 4, extra_slots=4)
    task = PresenceTask(presences, own, TurnDurationAverage())
    assert task.slots == (4, 4)
    await presences.save(WorkerPresence("other", "", None, 8, extra_slots=2), ttl_s=60)

    await task.renew()

    assert task.slots == (12, 6)
