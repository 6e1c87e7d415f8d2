"""Deletes stored objects that no row names, a few pages of the store at a time."""

import asyncio
from datetime import datetime

import structlog

from everturn.errors import EverturnError
from everturn.ports.life.object_rows import MAX_KEYS
from everturn.ports.life.orphans import SweepParts, find_orphans, try_delete_orphan
from everturn.ports.objects import StoredObject
from everturn.telemetry.guarded import guarded
from everturn.telemetry.metrics import ORPHANS_DELETED, RETENTION_FAILED

_log = structlog.get_logger(__name__)

PAGES = 10
"""Pages of keys that one look goes through at most."""
LOOK_EVERY_S = 5.0
"""Between two looks of one pass."""
MAX_SUSPECTS = 10_000
"""Orphans that are remembered from one pass to the next; what is above it waits for a later pass."""
RESTS = 10
"""A pass is followed by a rest of so many times what its listing took: millions of keys cost time and money. A store
that was away meanwhile is not counted."""


class OrphanSweep:
    """Goes through the store again and again, from its first key to its last, and owns where it is.

    An orphan is deleted by the second pass that finds it, unchanged. Passes are at least `after_s` apart by the
    monotonic clock, so that a wall clock that is wrong, here or at the store, never makes an upload look old whose
    message may still be committed: no commit takes an upload that began more than UPLOAD_LIMIT before it.
    Several workers may sweep at once: each sees for itself, and an object that is gone is nobody's failure.
    """

    def __init__(
        self, parts: SweepParts, *, after_s: float, page_keys: int = MAX_KEYS, max_suspects: int = MAX_SUSPECTS
    ) -> None:
        self._parts = parts
        self._after_s = after_s
        self._page_keys = page_keys
        self._max_suspects = max_suspects
        self._cursor: str | None = None
        self._suspects: dict[str, datetime] = {}
        self._found: dict[str, datetime] = {}
        self._listing_s = 0.0
        self._rests_until = 0.0

    async def run(self) -> None:
        """Look until cancelled. A look that fails is counted, and the next goes on behind what failed."""
        while True:
            try:
                with guarded("orphans_look", passing=(EverturnError,)):
                    await self.look()
            except EverturnError as error:
                RETENTION_FAILED.labels("orphans").inc()
                _log.error("retention_failed", kind="orphans", error=str(error))
            await asyncio.sleep(self._left_of_rest_s() or LOOK_EVERY_S)

    async def look(self) -> None:
        """The next pages. Raises Unavailable; the next look goes on behind what could not be deleted."""
        if self._left_of_rest_s():
            return
        for _ in range(PAGES):
            began_at = self._parts.clock.monotonic()
            page = await self._parts.objects.load_page(cursor=self._cursor, limit=self._page_keys)
            self._listing_s += self._parts.clock.monotonic() - began_at
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

    def _left_of_rest_s(self) -> float:
        return max(0.0, self._rests_until - self._parts.clock.monotonic())

    def _end_pass(self) -> None:
        self._suspects, self._found = self._found, {}
        self._rests_until = self._parts.clock.monotonic() + max(self._after_s, RESTS * self._listing_s)
        self._listing_s = 0.0
