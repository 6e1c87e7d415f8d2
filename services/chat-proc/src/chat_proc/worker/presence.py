"""Publishes that this worker is alive, what it can do and how long its turns take; reads the slot count of all workers;
answers readiness probes."""

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from chat_proc.bounds import TENANT_PART
from chat_proc.settings import WorkerSettings
from everturn.core.errors import Unavailable
from everturn.core.loops import guarded
from everturn.core.page_server import Page
from everturn.core.readiness import Part, check_all, summarize_readiness
from everturn.core.ttl_cache import TtlCache
from everturn.queue.ports import Presences, WorkerPresence
from everturn.turns.model import ClaimBounds

# How long the turns of this worker take: a moving average that weights recent turns most.

WEIGHT = 0.1
"""Of the newest turn; the last ten make up two thirds of the mean."""


class Pace:
    """Averages the duration of ended turns, for the worker's presence."""

    def __init__(self) -> None:
        self._turn_s: float | None = None

    @property
    def turn_s(self) -> float | None:
        """Seconds; None before the first turn has ended."""
        return self._turn_s

    def note(self, seconds: float) -> None:
        """Record the duration of an ended turn."""
        old = seconds if self._turn_s is None else self._turn_s
        self._turn_s = old + WEIGHT * (seconds - old)


EVERY_S: Final = 5.0
"""Interval between two renewals, and the time limit of one."""
RENEWALS_PER_TTL: Final = 3

_log = structlog.get_logger(__name__)


class PresenceTask:
    """Renews the presence of one worker; `run` is a task of its own."""

    def __init__(self, presences: Presences, own: WorkerPresence, pace: Pace, *, every_s: float = EVERY_S) -> None:
        self._presences = presences
        self._own = own
        self._pace = pace
        self._every_s = every_s
        self._slots, self._extra_slots = own.slots, own.extra_slots

    @property
    def slots(self) -> tuple[int, int]:
        """Ordinary and extra slots of all workers, as far as this one knows: at least its own."""
        return self._slots, self._extra_slots

    async def run(self) -> None:
        """Renew until cancelled. Afterwards the presence expires within 15 s."""
        while True:
            with guarded("presence_renewal"):
                await self.renew()
            await asyncio.sleep(self._every_s)

    async def renew(self) -> None:
        """Renew once; log a warning if Redis is unavailable."""
        try:
            async with asyncio.timeout(self._every_s):
                own = replace(self._own, turn_s=self._pace.turn_s)
                await self._presences.save(own, ttl_s=RENEWALS_PER_TTL * self._every_s)
                workers = await self._presences.load_all()
        except (Unavailable, TimeoutError) as error:
            _log.warning("Could not renew the presence of the worker", error=str(error))
            return
        self._slots = max(own.slots, sum(worker.slots for worker in workers))
        self._extra_slots = max(own.extra_slots, sum(worker.extra_slots for worker in workers))


def build_claim_bounds(settings: WorkerSettings, presence: PresenceTask) -> ClaimBounds:
    """The bounds of running turns for the workers that are alive now."""
    slots, extra = presence.slots
    tenant_max = max(1, math.ceil(slots / TENANT_PART))
    return ClaimBounds(settings.user_running_max, tenant_max, slots, extra)


# What a worker reports once it is ready.


@dataclass(frozen=True, slots=True)
class Readiness:
    """What this worker chose, for the operator."""

    model: str
    model_why: str
    sandbox: str
    sandbox_why: str
    embedder: str
    embedder_why: str
    lexical_only: bool
    """Memory search compares words, not meanings."""

    def line(self) -> str:
        """One line of JSON for the process supervisor."""
        return json.dumps(
            {
                "ready": True,
                "model": self.model,
                "why": self.model_why,
                "sandbox": self.sandbox,
                "sandbox_why": self.sandbox_why,
                "embedder": self.embedder,
                "embedder_why": self.embedder_why,
                "lexical_only": self.lexical_only,
            }
        )


# A worker's readiness page: checks its dependencies on request, and caches the answer for frequent readers.

READINESS_KEEP_S: Final = 2.0
"""How old an answer can be: the page needs no credential, so frequent reads must be cheap."""
_UNREADY: Final = 503
_READY: Final = 200


class ReadyPage:
    """Owns the last answer."""

    def __init__(self, parts: Mapping[str, Part], monotonic: Callable[[], float]) -> None:
        self._parts = parts
        self._cache = TtlCache(self._check_parts, keep_s=READINESS_KEEP_S, monotonic=monotonic)

    async def build(self) -> Page:
        """Status 503 if a part that turns need is unavailable, or if this worker accepts no more turns."""
        return await self._cache.load()

    async def _check_parts(self) -> Page:
        found = await check_all(self._parts)
        status = summarize_readiness(self._parts, found)
        body = {"status": status, "parts": {name: out.model_dump() for name, out in found.items()}}
        return Page(_UNREADY if status == "unready" else _READY, "application/json", json.dumps(body).encode())
