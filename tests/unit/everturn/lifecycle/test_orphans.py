"""No row names an orphan; it is checked once more before it is deleted."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from everturn.files.objects import StoredObject
from everturn.lifecycle.orphans import SweepParts, drop_young, find_orphans, try_delete_orphan
from everturn_testing.core import FixedClock
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.files.objects_contract import key_of

OLD, KNOWN = key_of(b"old"), key_of(b"known")


class Rows:
    """Knows some keys."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)

    async def load_orphans(self, keys: Sequence[str]) -> tuple[str, ...]:
        return tuple(key for key in keys if key not in self.known)


def make(*known: str, age_min: int = 61) -> tuple[SweepParts, MemoryObjects, Rows]:
    objects, rows, clock = MemoryObjects(), Rows(*known), FixedClock()
    objects.stored.update({OLD: b"old", KNOWN: b"known"})
    objects.modified_at = clock.now() - timedelta(minutes=age_min)
    return SweepParts(objects, rows.load_orphans, clock), objects, rows


async def stored(objects: MemoryObjects) -> tuple[StoredObject, ...]:
    return (await objects.load_page()).objects


async def test_it_is_named_by_no_row() -> None:
    parts, objects, _ = make(KNOWN)

    found = await find_orphans(parts, await stored(objects))

    assert [orphan.key for orphan in found] == [OLD]


@pytest.mark.parametrize(("age_min", "count"), [(61, 2), (59, 0)])
async def test_a_single_check_skips_objects_younger_than_an_hour(age_min: int, count: int) -> None:
    parts, objects, _ = make(age_min=age_min)

    assert len(drop_young(parts, await stored(objects))) == count


async def test_it_is_one_round_trip() -> None:
    parts, objects, _ = make(KNOWN)
    (orphan,) = await find_orphans(parts, await stored(objects))

    assert await try_delete_orphan(parts, orphan)

    assert set(objects.stored) == {KNOWN}


async def test_an_object_named_or_saved_again_is_not_deleted() -> None:
    parts, objects, rows = make(KNOWN)
    (orphan,) = await find_orphans(parts, await stored(objects))

    rows.known.add(OLD)
    named = await try_delete_orphan(parts, orphan)
    rows.known.remove(OLD)
    objects.modified_at = parts.clock.now()
    saved_again = await try_delete_orphan(parts, orphan)

    assert (named, saved_again) == (False, False)
    assert set(objects.stored) == {OLD, KNOWN}


async def test_an_object_deleted_by_another_sweep_is_no_failure() -> None:
    parts, objects, _ = make(KNOWN)
    (orphan,) = await find_orphans(parts, await stored(objects))
    objects.stored.clear()

    assert not await try_delete_orphan(parts, orphan)
