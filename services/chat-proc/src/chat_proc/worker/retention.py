"""Erases conversations in which nothing happened for longer than they are kept, rows that have run out, and orphans."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Protocol, TypeVar

import structlog

from everturn.errors import EverturnError
from everturn.model.ids import ConversationId
from everturn.ports.artifacts import Artifacts
from everturn.ports.event_stream import EventErasure
from everturn.ports.life.erasing import delete_erased_objects
from everturn.ports.life.retention import Expired, Retention
from everturn.ports.objects import Objects
from everturn.telemetry.guarded import guarded, run_guarded
from everturn.telemetry.metrics import CONVERSATIONS_EXPIRED, RETENTION_FAILED, ROWS_EXPIRED

_log = structlog.get_logger(__name__)

EVERY_S = 300.0
BATCH = 50
"""Conversations that are asked for at once; each goes in a transaction of its own."""
MAX_LEFT = 500
"""So many that can't be erased end a sweep."""
ROW_BATCH, SMALL_ROW_BATCH = 1_000, 20

T = TypeVar("T")


class OrphanTask(Protocol):
    """Deletes stored objects that no row names, until cancelled."""

    async def run(self) -> None: ...


class RetentionJob:
    """`days` is how long a conversation is kept after its last activity; 0 is for ever.

    Without `orphans`, stored objects that no row names are left to an operator.
    """

    def __init__(
        self,
        retention: Retention,
        events: EventErasure,
        artifacts: Artifacts,
        objects: Objects,
        *,
        days: int,
        orphans: OrphanTask | None = None,
    ) -> None:
        self._retention = retention
        self._events = events
        self._artifacts = artifacts
        self._objects = objects
        self._days = days
        self._orphans = orphans

    async def run(self) -> None:
        """Look every few minutes until cancelled, and for orphans beside it in their own time."""
        async with asyncio.TaskGroup() as tasks:
            if self._orphans:
                tasks.create_task(run_guarded("orphans", self._orphans.run))
            while True:
                with guarded("retention_sweep"):
                    await self.sweep()
                await asyncio.sleep(EVERY_S)

    async def sweep(self) -> None:
        """Remove all that is due. What fails holds up nothing else, and is due again the next time."""
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
                # Whatever becomes of it, this sweep doesn't ask for it again.
                left.add(conversation_id)
                erasing = self._retention.try_erase(conversation_id, days=self._days)
                if expired := await self._try("conversation", erasing, conversation_id=conversation_id):
                    left.remove(conversation_id)
                    await self._clear(expired)

    async def _clear(self, expired: Expired) -> None:
        """The rows are gone: what can't be removed now nobody can read, and the log names it."""
        CONVERSATIONS_EXPIRED.inc()
        conversation_id = expired.conversation_id
        await self._try("events", self._events.erase(conversation_id), conversation_id=conversation_id)
        deleting = delete_erased_objects(
            self._artifacts, self._objects, expired.owner, conversation_id, expired.object_keys
        )
        objects = await self._try("objects", deleting, conversation_id=conversation_id, keys=expired.object_keys)
        _log.info("conversation_expired", conversation_id=conversation_id, rows=expired.rows, objects=objects)

    async def _remove_rows(self) -> None:
        """In batches; in small ones where a large one is not done in time."""
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
            _log.error("retention_failed", kind=kind, error=str(error), **where)
            return None


def _count_rows(removed: Mapping[str, int]) -> None:
    for table, count in removed.items():
        ROWS_EXPIRED.labels(table).inc(count)
    if any(removed.values()):
        _log.info("rows_expired", **removed)
