"""Deletes stored objects that no row names, a few pages of the store at a time."""

from datetime import datetime

import structlog

from everturn.ports.life.object_rows import MAX_KEYS
from everturn.ports.life.orphans import YOUNGEST, SweepParts, find_orphans, try_delete_orphan
from everturn.ports.objects import StoredObject
from everturn.telemetry.metrics import ORPHANS_DELETED

_log = structlog.get_logger(__name__)

PAGES = 10
"""Pages of keys that one look goes through at most."""
MAX_SUSPECTS = 10_000
"""Orphans that are remembered from one pass to the next; what is above it waits for a later pass."""


class OrphanSweep:
    """Goes through the store again and again, from its first key to its last, and owns where it is.

    An orphan is deleted by the second pass that finds it, unchanged. Passes are an hour apart by the monotonic clock,
    so that a wall clock that is wrong, here or at the store, never makes an upload look old that is being committed.
    Several workers may sweep at once: each sees for itself, and an object that is gone is nobody's failure.
    """

    def __init__(self, parts: SweepParts, *, page_keys: int = MAX_KEYS, max_suspects: int = MAX_SUSPECTS) -> None:
        self._parts = parts
        self._page_keys = page_keys
        self._max_suspects = max_suspects
        self._cursor: str | None = None
        self._suspects: dict[str, datetime] = {}
        self._found: dict[str, datetime] = {}
        self._ended_at: float | None = None

    async def look(self) -> None:
        """The next pages. Raises Unavailable; the next look goes on behind what could not be deleted."""
        if self._is_resting():
            return
        self._ended_at = None
        for _ in range(PAGES):
            page = await self._parts.objects.load_page(cursor=self._cursor, limit=self._page_keys)
            self._cursor = page.next_cursor
            try:
                for orphan in await find_orphans(self._parts, page.objects):
                    await self._judge(orphan)
            finally:
                if page.next_cursor is None:
                    self._end_pass()
            if page.next_cursor is None:
                return

    async def _judge(self, orphan: StoredObject) -> None:
        """Remember it until the next pass, and delete it if the last one knew it so. What fails stays remembered."""
        if len(self._found) < self._max_suspects:
            self._found[orphan.key] = orphan.modified_at
        known = self._suspects.get(orphan.key) == orphan.modified_at
        if known and await try_delete_orphan(self._parts, orphan):
            self._found.pop(orphan.key, None)
            ORPHANS_DELETED.inc()
            _log.info("orphan_deleted", key=orphan.key, size=orphan.size)

    def _is_resting(self) -> bool:
        if self._ended_at is None:
            return False
        return self._parts.clock.monotonic() < self._ended_at + YOUNGEST.total_seconds()

    def _end_pass(self) -> None:
        self._suspects, self._found = self._found, {}
        self._ended_at = self._parts.clock.monotonic()
