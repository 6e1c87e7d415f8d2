"""Erases conversations in which nothing happened for longer than they are kept, and rows that have run out."""

import asyncio

import structlog

from everturn.errors import EverturnError, Unavailable
from everturn.ports.artifacts import Artifacts
from everturn.ports.event_stream import EventErasure
from everturn.ports.life.erasing import delete_erased_objects
from everturn.ports.life.retention import Expired, Retention
from everturn.ports.objects import Objects
from everturn.telemetry.metrics import CONVERSATIONS_EXPIRED, ROWS_EXPIRED

_log = structlog.get_logger(__name__)

EVERY_S = 300.0
BATCH = 5
"""Conversations of one transaction, which has to end within the limit of a statement."""
ROW_BATCH = 1_000


class RetentionJob:
    """`days` is how long a conversation is kept after its last activity; 0 is for ever."""

    def __init__(
        self, retention: Retention, events: EventErasure, artifacts: Artifacts, objects: Objects, *, days: int
    ) -> None:
        self._retention = retention
        self._events = events
        self._artifacts = artifacts
        self._objects = objects
        self._days = days

    async def run(self) -> None:
        """Look every few minutes until cancelled."""
        while True:
            await self.sweep()
            await asyncio.sleep(EVERY_S)

    async def sweep(self) -> None:
        """Remove all that is due, batch by batch. What fails is due again the next time."""
        try:
            while self._days and (expired := await self._retention.erase_expired(days=self._days, limit=BATCH)):
                for conversation in expired:
                    await self._clear(conversation)
            await self._remove_rows()
        except Unavailable as error:
            _log.warning("retention_failed", error=str(error))

    async def _remove_rows(self) -> None:
        full = True
        while full:
            removed = await self._retention.remove_expired_rows(days=self._days, limit=ROW_BATCH)
            for table, count in removed.items():
                ROWS_EXPIRED.labels(table).inc(count)
            if any(removed.values()):
                _log.info("rows_expired", **removed)
            full = any(count >= ROW_BATCH for count in removed.values())

    async def _clear(self, expired: Expired) -> None:
        """The rows are gone: what can't be removed now nobody can read, and the log names it."""
        CONVERSATIONS_EXPIRED.inc()
        conversation_id, objects = expired.conversation_id, 0
        try:
            await self._events.erase(conversation_id)
            objects = await delete_erased_objects(
                self._artifacts, self._objects, expired.owner, conversation_id, expired.object_keys
            )
        except EverturnError as error:
            keys = list(expired.object_keys)
            _log.error("expired_objects_left", conversation_id=conversation_id, keys=keys, error=str(error))
        _log.info("conversation_expired", conversation_id=conversation_id, rows=expired.rows, objects=objects)
