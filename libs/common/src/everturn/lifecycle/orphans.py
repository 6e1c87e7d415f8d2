"""Stored objects that no row names: finding them across tenants, by key only, and the sweep that deletes them. They
remain when a process dies between saving and committing, and when an erasure can't reach the store."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from everturn.core.clock import Clock
from everturn.files.objects import Objects, StoredObject

MAX_KEYS = 1_000
"""Keys that one call accepts at most."""

LoadOrphans = Callable[[Sequence[str]], Awaitable[tuple[str, ...]]]
"""Returns those of the keys that no row names: neither an artifact's file nor a turn's manifest.
Raises Invalid above MAX_KEYS."""

YOUNGEST = timedelta(hours=1)
"""By the wall clock, for callers that check only once. A younger object can belong to an uncommitted message."""


@dataclass(frozen=True, slots=True)
class SweepParts:
    """The dependencies of a sweep."""

    objects: Objects
    load_orphans: LoadOrphans
    clock: Clock


def drop_young(parts: SweepParts, found: Sequence[StoredObject]) -> list[StoredObject]:
    """Those that are older than an hour."""
    before = parts.clock.now() - YOUNGEST
    return [stored for stored in found if stored.modified_at < before]


async def find_orphans(parts: SweepParts, found: Sequence[StoredObject]) -> list[StoredObject]:
    """Those that no row names, of any age; accepts at most MAX_KEYS at once."""
    lost = set(await parts.load_orphans([stored.key for stored in found])) if found else set[str]()
    return [stored for stored in found if stored.key in lost]


async def try_delete_orphan(parts: SweepParts, orphan: StoredObject) -> bool:
    """False when it is no longer an orphan, was saved again, or another sweep deleted it.

    Saving an object again gives it a new time, so it is checked once more before it is deleted. Some milliseconds
    remain between that check and the delete, in a conversation that still exists.
    """
    again = await parts.objects.load_page(orphan.key, limit=1)
    same = [stored for stored in again.objects if stored == orphan]
    if not await find_orphans(parts, same):
        return False
    return await parts.objects.delete([orphan.key]) == 1
