"""Stored objects that no row names: which they are, asked across tenants by key only, and the sweep that deletes
them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from everturn.core.clock import Clock
from everturn.files.objects import Objects, StoredObject

MAX_KEYS = 1_000
"""Keys that one call takes at most."""


class ObjectRows(Protocol):
    """Asked with keys that the object store has."""

    async def load_orphans(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Those that no row names: no artifact has the file, no turn the manifest. Raises Invalid above MAX_KEYS."""
        ...


# Stored objects that no row names: how they are found, and deleted one by one. Such are left by a process that died
# between saving and committing, and by erasures that could not reach the store.

YOUNGEST = timedelta(hours=1)
"""By the wall clock, for who looks only once. What is younger may belong to a message that is not committed yet."""


@dataclass(frozen=True, slots=True)
class SweepParts:
    """What a sweep works with."""

    objects: Objects
    rows: ObjectRows
    clock: Clock


def drop_young(parts: SweepParts, found: Sequence[StoredObject]) -> list[StoredObject]:
    """Those that are older than an hour."""
    before = parts.clock.now() - YOUNGEST
    return [stored for stored in found if stored.modified_at < before]


async def find_orphans(parts: SweepParts, found: Sequence[StoredObject]) -> list[StoredObject]:
    """Those that no row names, however young; at most MAX_KEYS are asked for at once."""
    lost = set(await parts.rows.load_orphans([stored.key for stored in found])) if found else set[str]()
    return [stored for stored in found if stored.key in lost]


async def try_delete_orphan(parts: SweepParts, orphan: StoredObject) -> bool:
    """False when it is not an orphan any more, was saved anew, or another sweep had it.

    An object that is saved anew gets a new time, so it is looked at once more before it goes. Between that look and
    the delete remain some milliseconds, in a conversation that still exists.
    """
    again = await parts.objects.load_page(orphan.key, limit=1)
    same = [stored for stored in again.objects if stored == orphan]
    if not await find_orphans(parts, same):
        return False
    return await parts.objects.delete([orphan.key]) == 1
