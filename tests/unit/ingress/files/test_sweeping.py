"""The sweeper of objects finds old unknown ones, and no others."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from everturn.lifecycle.orphans import SweepParts
from everturn_testing.core import FixedClock
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.files.objects_contract import key_of
from ingress.files.sweeping import run_sweep

OLD, KNOWN = key_of(b"old"), key_of(b"known")


class Rows:
    """Knows some keys; `asked` has the number of keys of each call."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.asked: list[int] = []

    async def load_orphans(self, keys: Sequence[str]) -> tuple[str, ...]:
        self.asked.append(len(keys))
        return tuple(key for key in keys if key not in self.known)


@pytest.fixture
def objects() -> MemoryObjects:
    store = MemoryObjects()
    store.stored.update({OLD: b"old", KNOWN: b"known"})
    store.modified_at = FixedClock().now() - timedelta(hours=2)
    return store


async def sweep(objects: MemoryObjects, rows: Rows, **options: Any) -> tuple[Any, list[dict[str, object]]]:
    lines: list[dict[str, object]] = []
    wanted = {"prefix": "", "delete": False} | options
    return await run_sweep(SweepParts(objects, rows.load_orphans, FixedClock()), report=lines.append, **wanted), lines


async def test_an_orphan_is_reported_and_deleted_only_on_request(objects: MemoryObjects) -> None:
    swept, lines = await sweep(objects, Rows(KNOWN))

    assert (swept.seen, swept.orphans, swept.orphan_bytes, swept.deleted) == (2, 1, 3, 0)
    assert [(line["key"], line["deleted"]) for line in lines] == [(OLD, False)]
    assert set(objects.stored) == {OLD, KNOWN}


async def test_an_orphan_is_deleted_and_a_named_object_stays(objects: MemoryObjects) -> None:
    swept, lines = await sweep(objects, Rows(KNOWN), delete=True)

    assert (swept.deleted, lines[0]["deleted"]) == (1, True)
    assert set(objects.stored) == {KNOWN}


async def test_the_store_is_read_page_by_page(objects: MemoryObjects) -> None:
    objects.stored.update({key_of(str(n).encode()): b"" for n in range(7)})
    rows = Rows()

    swept, _ = await sweep(objects, rows, limit=4)

    assert swept.orphans == 9
    assert max(rows.asked) <= 4


async def test_a_prefix_keeps_it_to_one_conversation(objects: MemoryObjects) -> None:
    swept, _ = await sweep(objects, Rows(), prefix="conv_none/")

    assert swept.seen == 0
