"""Finds stored objects that no row names, and deletes them when asked to.

Such are left by a process that died between saving and committing, and by erasures that could not reach the store.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from everturn.ports.clock import Clock
from everturn.ports.life.object_rows import MAX_KEYS, ObjectRows
from everturn.ports.objects import Objects, StoredObject

YOUNGEST = timedelta(hours=1)
"""What is younger may belong to a message or a round that is not committed yet."""


@dataclass(frozen=True, slots=True)
class SweepParts:
    """What a sweep works with."""

    objects: Objects
    rows: ObjectRows
    clock: Clock


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep saw and did; bytes are those of the orphans."""

    seen: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    deleted: int = 0


Report = Callable[[dict[str, object]], None]


async def run_sweep(parts: SweepParts, *, prefix: str, delete: bool, report: Report, limit: int = MAX_KEYS) -> Swept:
    """Look through the store, `limit` keys at a time; `report` hears of each orphan. Raises Unavailable.

    An object that is saved anew while it is looked at gets a new time, so it is looked at once more before it goes.
    Between that look and the delete remain some milliseconds, in a conversation that still exists.
    """
    swept = Swept()
    async for page in _pages(parts.objects, prefix, limit):
        orphans = await _find_orphans(parts, page)
        gone = {found.key for found in orphans if delete and await _try_delete(parts, found)}
        for found in orphans:
            report(_describe(found, deleted=found.key in gone))
        swept = Swept(
            seen=swept.seen + len(page),
            orphans=swept.orphans + len(orphans),
            orphan_bytes=swept.orphan_bytes + sum(found.size for found in orphans),
            deleted=swept.deleted + len(gone),
        )
    return swept


async def _pages(objects: Objects, prefix: str, limit: int) -> AsyncGenerator[Sequence[StoredObject]]:
    cursor: str | None = ""
    while cursor is not None:
        page = await objects.load_page(prefix, cursor=cursor, limit=limit)
        cursor = page.next_cursor
        yield page.objects


async def _find_orphans(parts: SweepParts, found: Sequence[StoredObject]) -> list[StoredObject]:
    """Those that are old enough and that no row names."""
    before: datetime = parts.clock.now() - YOUNGEST
    old = [stored for stored in found if stored.modified_at < before]
    lost = set(await parts.rows.load_orphans([stored.key for stored in old])) if old else set[str]()
    return [stored for stored in old if stored.key in lost]


async def _try_delete(parts: SweepParts, orphan: StoredObject) -> bool:
    """False when it is not an orphan any more."""
    again = await parts.objects.load_page(orphan.key, limit=1)
    if not await _find_orphans(parts, [stored for stored in again.objects if stored.key == orphan.key]):
        return False
    return await parts.objects.delete([orphan.key]) == 1


def _describe(found: StoredObject, *, deleted: bool) -> dict[str, object]:
    return {
        "key": found.key,
        "size": found.size,
        "modified_at": found.modified_at.isoformat(),
        "deleted": deleted,
    }
