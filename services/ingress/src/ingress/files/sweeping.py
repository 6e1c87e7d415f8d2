"""Finds stored objects that no row names, and deletes them when an operator requests it."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from everturn.files.objects import Objects, StoredObject
from everturn.lifecycle.orphans import MAX_KEYS, SweepParts, drop_young, find_orphans, try_delete_orphan

Report = Callable[[dict[str, object]], None]


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep; bytes are those of the orphans."""

    seen: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    deleted: int = 0


async def run_sweep(parts: SweepParts, *, prefix: str, delete: bool, report: Report, limit: int = MAX_KEYS) -> Swept:
    """Scan the store, `limit` keys at a time; calls `report` for each orphan. Raises Unavailable."""
    swept = Swept()
    async for page in _pages(parts.objects, prefix, limit):
        orphans = await find_orphans(parts, drop_young(parts, page))
        gone = {found.key for found in orphans if delete and await try_delete_orphan(parts, found)}
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


def _describe(found: StoredObject, *, deleted: bool) -> dict[str, object]:
    return {
        "key": found.key,
        "size": found.size,
        "modified_at": found.modified_at.isoformat(),
        "deleted": deleted,
    }
