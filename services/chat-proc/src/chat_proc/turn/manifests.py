"""Keeps the manifests of a turn's requests as objects, beside the turn; what can't be kept is counted, no more."""

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from everturn.model.artifacts import manifest_key
from everturn.model.ids import ConversationId, TurnId
from everturn.ports.objects import Objects
from everturn.telemetry.metrics import MANIFESTS_LOST

_log = structlog.get_logger(__name__)

MAX_WAITING = 4
SAVE_S = 2.0
"""Of one manifest; so long at most does the end of a turn wait for each that is not saved yet."""

Build = Callable[[], bytes]


class ManifestKeeper:
    """`keep` is called by the turn's own task; `run` is owned by whoever runs the turn and ends after `close`."""

    def __init__(self, objects: Objects, conversation_id: ConversationId, turn_id: TurnId) -> None:
        self._objects = objects
        self._conversation_id = conversation_id
        self._turn_id = turn_id
        self._waiting: deque[tuple[int, Build]] = deque()
        self._bell = asyncio.Event()
        self._closed = False

    def keep(self, round_number: int, build: Build) -> None:
        """Save the manifest of a round some time; `build` runs in a thread."""
        if len(self._waiting) >= MAX_WAITING:
            self._count_lost(round_number, "too many wait")
            return
        self._waiting.append((round_number, build))
        self._bell.set()

    def close(self) -> None:
        """Nothing more will come: `run` ends when what waits is saved."""
        self._closed = True
        self._bell.set()

    def abandon(self) -> None:
        """The lease is lost: save no more. What is saved already may by now be the manifest of another worker."""
        self._waiting.clear()

    async def run(self) -> None:
        while self._waiting or not self._closed:
            await self._bell.wait()
            self._bell.clear()
            while self._waiting:
                await self._save(*self._waiting.popleft())

    async def _save(self, round_number: int, build: Build) -> None:
        # Whatever goes wrong with it: an error that left this task would end the turn beside it.
        (failure,) = await asyncio.gather(self._store(round_number, build), return_exceptions=True)
        if failure is not None:
            self._count_lost(round_number, repr(failure))

    async def _store(self, round_number: int, build: Build) -> None:
        async with asyncio.timeout(SAVE_S):
            await self._objects.save(self._key(round_number), await asyncio.to_thread(build))

    def _key(self, round_number: int) -> str:
        return manifest_key(self._conversation_id, self._turn_id, round_number)

    def _count_lost(self, round_number: int, why: str) -> None:
        MANIFESTS_LOST.inc()
        _log.warning("manifest_not_kept", turn_id=self._turn_id, round=round_number, why=why)
