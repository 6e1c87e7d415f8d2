"""Deletes expired data: conversations that were inactive for longer than the retention period, expired rows, and stored
objects that no row references."""

import asyncio
from collections.abc import Awaitable, Mapping
from datetime import datetime
from typing import TypeVar

import structlog

from everturn.core.errors import EverturnError
from everturn.core.ids import ConversationId
from everturn.core.loops import guarded, run_guarded
from everturn.core.metrics import CONVERSATIONS_EXPIRED, ORPHANS_DELETED, RETENTION_FAILED, ROWS_EXPIRED
from everturn.events.stream import EventWriter
from everturn.files.objects import Objects, StoredObject
from everturn.files.ports import Artifacts
from everturn.lifecycle.erasure import Expired, Retention, delete_erased_objects
from everturn.lifecycle.orphans import MAX_KEYS, SweepParts, find_orphans, try_delete_orphan

_log = structlog.get_logger(__name__)

T = TypeVar("T")

EVERY_S = 300.0
"""Interval between two sweeps."""
BATCH = 50
"""Conversations per query; each is erased in a transaction of its own."""
MAX_LEFT = 500
"""A sweep ends after this many conversations that can't be erased."""
ROW_BATCH, SMALL_ROW_BATCH = 1_000, 20

PAGES = 10
"""Maximum pages of keys per step."""
STEP_EVERY_S = 5.0
"""Interval between two steps of one pass."""
MAX_SUSPECTS = 10_000
"""Orphans remembered from one pass to the next; the others wait for a later pass."""
PAUSE_FACTOR = 10
"""A pass is followed by a pause of this many times its listing time: millions of keys cost time and money. Failed
listings are not counted."""


class OrphanSweep:
    """Deletes stored objects that no row references: scans the store repeatedly, from its first key to its last, a few
    pages at a time, and owns the cursor.

    An orphan is deleted by the second pass that finds it, unchanged. Passes are at least `after_s` apart by the
    monotonic clock, so that a wrong wall clock, here or at the store, never makes an upload scan old while its message
    can still be committed: no commit accepts an upload that began more than UPLOAD_LIMIT before it.
    Several workers can sweep at once: each decides on its own, and an object that is already gone is no failure.
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
        self._paused_until = 0.0

    async def run(self) -> None:
        """Scan until cancelled. A failed step is counted, and the next one continues after the failure."""
        while True:
            try:
                with guarded("orphans_check", passing=(EverturnError,)):
                    await self.scan()
            except EverturnError as error:
                RETENTION_FAILED.labels("orphans").inc()
                _log.error("Retention failed", kind="orphans", error=str(error))
            await asyncio.sleep(self._pause_left_s() or STEP_EVERY_S)

    async def scan(self) -> None:
        """Scan the next pages. Raises Unavailable; the next step continues after what could not be deleted."""
        if self._pause_left_s():
            return
        for _ in range(PAGES):
            began_at = self._parts.clock.monotonic()
            page = await self._parts.objects.load_page(cursor=self._cursor, limit=self._page_keys)
            self._listing_s += self._parts.clock.monotonic() - began_at
            self._cursor = page.next_cursor
            try:
                for orphan in await find_orphans(self._parts, page.objects):
                    await self._check_orphan(orphan)
            finally:
                if page.next_cursor is None:
                    self._end_pass()
            if page.next_cursor is None:
                return

    async def _check_orphan(self, orphan: StoredObject) -> None:
        """Remember it until the next pass, and delete it if the last pass found it unchanged. If that fails, it stays
        remembered."""
        if len(self._found) < self._max_suspects:
            self._found[orphan.key] = orphan.modified_at
        known = self._suspects.get(orphan.key) == orphan.modified_at
        if known and await try_delete_orphan(self._parts, orphan):
            self._found.pop(orphan.key, None)
            ORPHANS_DELETED.inc()
            _log.info("Deleted an orphaned object", key=orphan.key, size=orphan.size)

    def _pause_left_s(self) -> float:
        return max(0.0, self._paused_until - self._parts.clock.monotonic())

    def _end_pass(self) -> None:
        self._suspects, self._found = self._found, {}
        self._paused_until = self._parts.clock.monotonic() + max(self._after_s, PAUSE_FACTOR * self._listing_s)
        self._listing_s = 0.0


class RetentionJob:
    """Erases conversations that were inactive for longer than the retention period, expired rows, and orphans.

    `days` is how long a conversation is kept after its last activity; 0 is for ever.

    Without `orphans`, stored objects that no row references are left to an operator.
    """

    def __init__(
        self,
        retention: Retention,
        events: EventWriter,
        artifacts: Artifacts,
        objects: Objects,
        *,
        days: int,
        orphans: OrphanSweep | None = None,
    ) -> None:
        self._retention = retention
        self._events = events
        self._artifacts = artifacts
        self._objects = objects
        self._days = days
        self._orphans = orphans

    async def run(self) -> None:
        """Sweep every few minutes until cancelled; orphans are swept concurrently on their own schedule."""
        async with asyncio.TaskGroup() as tasks:
            if self._orphans:
                tasks.create_task(run_guarded("orphans", self._orphans.run))
            while True:
                with guarded("retention_sweep"):
                    await self.sweep()
                await asyncio.sleep(EVERY_S)

    async def sweep(self) -> None:
        """Remove everything that is due. A failure holds up nothing else, and is retried in the next sweep."""
        if self._days:
            await self._expire_conversations()
        await self._remove_rows()

    async def _expire_conversations(self) -> None:
        left: set[ConversationId] = set()
        while len(left) < MAX_LEFT:
            due = await self._try("due", self._retention.load_due(days=self._days, limit=BATCH, skip=left))
            if not due:
                return
            for conversation_id in due:
                # Whether or not this succeeds, the sweep doesn't load it again.
                left.add(conversation_id)
                erasing = self._retention.try_erase(conversation_id, days=self._days)
                if expired := await self._try("conversation", erasing, conversation_id=conversation_id):
                    left.remove(conversation_id)
                    await self._clear(expired)

    async def _clear(self, expired: Expired) -> None:
        """The rows are gone, so what can't be removed now is unreadable, and the log names it."""
        CONVERSATIONS_EXPIRED.inc()
        conversation_id = expired.conversation_id
        await self._try("events", self._events.erase(conversation_id), conversation_id=conversation_id)
        deleting = delete_erased_objects(
            self._artifacts, self._objects, expired.owner, conversation_id, expired.object_keys
        )
        objects = await self._try("objects", deleting, conversation_id=conversation_id, keys=expired.object_keys)
        _log.info(
            "Deleted an expired conversation", conversation_id=conversation_id, rows=expired.rows, objects=objects
        )

    async def _remove_rows(self) -> None:
        """In batches; in small ones if a large one times out."""
        for limit in (ROW_BATCH, SMALL_ROW_BATCH):
            full = True
            while full:
                removing = self._retention.remove_expired_rows(days=self._days, limit=limit)
                removed = await self._try("rows", removing, limit=limit)
                if removed is None:
                    break
                _count_rows(removed)
                full = any(count >= limit for count in removed.values())
            else:
                return

    async def _try(self, kind: str, doing: Awaitable[T], **where: object) -> T | None:
        try:
            return await doing
        except EverturnError as error:
            RETENTION_FAILED.labels(kind).inc()
            _log.error("Retention failed", kind=kind, error=str(error), **where)
            return None


def _count_rows(removed: Mapping[str, int]) -> None:
    for table, count in removed.items():
        ROWS_EXPIRED.labels(table).inc(count)
    if any(removed.values()):
        _log.info("Deleted expired rows", **removed)
