"""Workers delete what two passes, some minutes apart, found without a row; a bounded part of the store at a time."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from prometheus_client import REGISTRY

from chat_proc.worker.retention import PAGES, PAUSE_FACTOR, OrphanSweep
from everturn.core.clock import Clock, SystemClock
from everturn.core.errors import Unavailable
from everturn.files.objects import ObjectPage
from everturn.lifecycle.orphans import SweepParts
from everturn_testing.core import BEGINNING, FixedClock
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.files.objects_contract import key_of

OLD, KNOWN = key_of(b"old"), key_of(b"known")
AFTER_S = 300.0


class Rows:
    """Knows some keys; `asked` is how many it was asked for at once."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.asked: list[int] = []
        self.away = False

    async def load_orphans(self, keys: Sequence[str]) -> tuple[str, ...]:
        if self.away:
            raise Unavailable()
        self.asked.append(len(keys))
        return tuple(key for key in keys if key not in self.known)


class AheadClock:
    """Its wall clock is hours ahead; its monotonic time is right."""

    def __init__(self, right: FixedClock) -> None:
        self._right = right

    def now(self) -> datetime:
        return self._right.now() + timedelta(hours=9)

    def monotonic(self) -> float:
        return self._right.monotonic()


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def objects() -> MemoryObjects:
    store = MemoryObjects()
    store.stored.update({OLD: b"old", KNOWN: b"known"})
    store.modified_at = BEGINNING - timedelta(hours=2)
    return store


def deleted() -> float:
    return REGISTRY.get_sample_value("everturn_orphans_deleted_total") or 0


def failed() -> float:
    return REGISTRY.get_sample_value("everturn_retention_failed_total", {"kind": "orphans"}) or 0


def make(objects: MemoryObjects, rows: Rows, clock: Clock, *, page_keys: int = 1_000) -> OrphanSweep:
    return OrphanSweep(SweepParts(objects, rows.load_orphans, clock), after_s=AFTER_S, page_keys=page_keys)


async def test_an_orphan_goes_when_it_is_found_again_by_a_later_pass(objects: MemoryObjects, clock: FixedClock) -> None:
    sweep, before = make(objects, Rows(KNOWN), clock), deleted()

    await sweep.scan()
    clock.advance(AFTER_S - 1)
    await sweep.scan()
    resting = set(objects.stored)
    clock.advance(1)
    await sweep.scan()

    assert resting == {OLD, KNOWN}
    assert set(objects.stored) == {KNOWN}
    assert deleted() == before + 1


async def test_an_upload_stays_where_a_wrong_wall_clock_calls_it_old(objects: MemoryObjects, clock: FixedClock) -> None:
    objects.modified_at = clock.now()
    sweep = make(objects, Rows(KNOWN), AheadClock(clock))
    await sweep.scan()
    clock.advance(AFTER_S)
    # Between the two passes its client stored it again, and its row is about to be committed.
    objects.modified_at = clock.now()

    await sweep.scan()

    assert OLD in objects.stored


async def test_a_wrong_wall_clock_does_not_protect_orphans(objects: MemoryObjects, clock: FixedClock) -> None:
    objects.modified_at = clock.now() + timedelta(hours=9)
    sweep = make(objects, Rows(KNOWN), clock)

    await sweep.scan()
    clock.advance(AFTER_S)
    await sweep.scan()

    assert set(objects.stored) == {KNOWN}


async def test_the_pause_grows_with_the_last_successful_listing(clock: FixedClock) -> None:
    class Slow(MemoryObjects):
        """Its lists take a while."""

        async def load_page(self, prefix: str = "", *, cursor: str | None = None, limit: int = 1_000) -> ObjectPage:
            clock.advance(AFTER_S)
            return await super().load_page(prefix, cursor=cursor, limit=limit)

    objects, rows = Slow(), Rows(KNOWN)
    objects.stored.update({OLD: b"old", KNOWN: b"known"})
    sweep = make(objects, rows, clock)
    objects.down = True
    with pytest.raises(Unavailable):
        await sweep.scan()
    objects.down = False
    await sweep.scan()

    clock.advance(PAUSE_FACTOR * AFTER_S - 1)
    await sweep.scan()
    resting = len(rows.asked)
    clock.advance(1)
    await sweep.scan()

    assert resting == 1
    assert set(objects.stored) == {KNOWN}


async def test_a_failed_scan_is_counted_and_the_next_continues() -> None:
    class Deleting(MemoryObjects):
        """Signals when something was deleted."""

        def __init__(self) -> None:
            super().__init__()
            self.has_deleted = asyncio.Event()

        async def delete(self, keys: Sequence[str]) -> int:
            self.has_deleted.set()
            return await super().delete(keys)

    class Away(Rows):
        """Away for the first question."""

        async def load_orphans(self, keys: Sequence[str]) -> tuple[str, ...]:
            self.away = not self.asked
            self.asked.append(len(keys))
            if self.away:
                raise Unavailable()
            return tuple(key for key in keys if key not in self.known)

    before, objects = failed(), Deleting()
    objects.stored.update({OLD: b"old", KNOWN: b"known"})
    sweep = OrphanSweep(SweepParts(objects, Away(KNOWN).load_orphans, SystemClock()), after_s=0.01)

    running = asyncio.create_task(sweep.run())
    async with asyncio.timeout(30):
        await objects.has_deleted.wait()
    running.cancel()

    assert failed() == before + 1
    assert set(objects.stored) == {KNOWN}


async def test_a_scan_reads_some_pages_and_the_next_continues(objects: MemoryObjects, clock: FixedClock) -> None:
    objects.stored.update({key_of(str(n).encode()): b"" for n in range(PAGES + 1)})
    keys, rows = len(objects.stored), Rows()
    sweep = make(objects, rows, clock, page_keys=1)

    await sweep.scan()
    first = len(rows.asked)
    await sweep.scan()

    assert first == PAGES
    assert rows.asked == [1] * keys


async def test_a_store_that_is_away_is_looked_at_from_there_the_next_time(
    objects: MemoryObjects, clock: FixedClock
) -> None:
    sweep = make(objects, Rows(KNOWN), clock, page_keys=1)
    objects.down = True
    with pytest.raises(Unavailable):
        await sweep.scan()
    objects.down = False

    await sweep.scan()
    clock.advance(AFTER_S)
    await sweep.scan()

    assert set(objects.stored) == {KNOWN}


async def test_a_page_that_fails_is_passed_and_taken_by_a_later_pass(objects: MemoryObjects, clock: FixedClock) -> None:
    rows = Rows(KNOWN)
    sweep = make(objects, rows, clock)
    await sweep.scan()
    clock.advance(AFTER_S)
    rows.away = True
    with pytest.raises(Unavailable):
        await sweep.scan()
    rows.away = False

    for _ in range(2):
        clock.advance(AFTER_S)
        await sweep.scan()

    assert set(objects.stored) == {KNOWN}


async def test_two_workers_that_meet_delete_it_once(objects: MemoryObjects, clock: FixedClock) -> None:
    class Meeting(Rows):
        """Nobody is answered before both have asked."""

        def __init__(self, *known: str) -> None:
            super().__init__(*known)
            self.barrier = asyncio.Barrier(2)

        async def load_orphans(self, keys: Sequence[str]) -> tuple[str, ...]:
            async with self.barrier:
                return await super().load_orphans(keys)

    rows, before = Meeting(KNOWN), deleted()
    sweeps = [make(objects, rows, clock) for _ in range(2)]

    for _ in range(2):
        async with asyncio.timeout(30), asyncio.TaskGroup() as workers:
            for sweep in sweeps:
                workers.create_task(sweep.scan())
        clock.advance(AFTER_S)

    assert set(objects.stored) == {KNOWN}
    assert deleted() == before + 1


async def test_no_more_orphans_are_remembered_than_fit(objects: MemoryObjects, clock: FixedClock) -> None:
    sweep = OrphanSweep(SweepParts(objects, Rows().load_orphans, clock), after_s=AFTER_S, max_suspects=1)

    left: list[int] = []
    for _ in range(3):
        await sweep.scan()
        left.append(len(objects.stored))
        clock.advance(AFTER_S)

    assert left == [2, 1, 0]
