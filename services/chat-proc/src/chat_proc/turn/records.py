"""Records of a turn in addition to its blocks: the manifests of its requests, and metrics. Failures are counted."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

import structlog

from everturn.core.clock import Clock
from everturn.core.errors import EverturnError
from everturn.core.identity import lane_of
from everturn.core.ids import ConversationId, TurnId
from everturn.core.loops import guarded
from everturn.core.metrics import (
    CACHED_TOKENS,
    COST_USD,
    FIRST_ANSWER_SECONDS,
    FIRST_TOKEN_SECONDS,
    MANIFESTS_LOST,
    QUEUE_SECONDS,
    TOKENS,
    TURN_SECONDS,
    TURNS_ENDED,
    UNPRICED_CALLS,
)
from everturn.events.model import AnyEvent, ChatDelta
from everturn.files.model import manifest_key
from everturn.files.objects import Objects
from everturn.timeline.turns import Outcome, Turn
from everturn.turns.model import Claim, UsageEvent

_log = structlog.get_logger(__name__)

MAX_WAITING = 4
SAVE_S = 2.0
"""Time limit for saving one manifest; the end of a turn waits at most this long for each unsaved one."""

Build = Callable[[], bytes]


class ManifestKeeper:
    """`keep` is called by the turn's own task; `run` is owned by the turn's runner and ends after `close`."""

    def __init__(self, objects: Objects, conversation_id: ConversationId, turn_id: TurnId) -> None:
        self._objects = objects
        self._conversation_id = conversation_id
        self._turn_id = turn_id
        self._waiting: deque[tuple[int, Build]] = deque()
        self._bell = asyncio.Event()
        self._closed = False

    def keep(self, round_number: int, build: Build) -> None:
        """Queue the manifest of a round for saving; `build` runs in a thread."""
        if len(self._waiting) >= MAX_WAITING:
            self._count_lost(round_number, "too many wait")
            return
        self._waiting.append((round_number, build))
        self._bell.set()

    def close(self) -> None:
        """Accept no more manifests: `run` ends once the queued ones are saved."""
        self._closed = True
        self._bell.set()

    def abandon(self) -> None:
        """Save no more, because the lease is lost. A saved manifest may by now be another worker's."""
        self._waiting.clear()

    async def run(self) -> None:
        while self._waiting or not self._closed:
            await self._bell.wait()
            self._bell.clear()
            while self._waiting:
                await self._save(*self._waiting.popleft())

    async def _save(self, round_number: int, build: Build) -> None:
        # An error that left this task would end the turn too.
        with guarded("manifests", turn_id=self._turn_id, round=round_number) as guard:
            try:
                await self._store(round_number, build)
            except (EverturnError, TimeoutError) as error:
                self._count_lost(round_number, repr(error))
        if guard.error is not None:
            self._count_lost(round_number, repr(guard.error))

    async def _store(self, round_number: int, build: Build) -> None:
        async with asyncio.timeout(SAVE_S):
            await self._objects.save(self._key(round_number), await asyncio.to_thread(build))

    def _key(self, round_number: int) -> str:
        return manifest_key(self._conversation_id, self._turn_id, round_number)

    def _count_lost(self, round_number: int, why: str) -> None:
        MANIFESTS_LOST.inc()
        _log.warning("Could not save the manifest of the request", turn_id=self._turn_id, round=round_number, why=why)


class TurnMeter:
    """Metrics of a turn: how long people waited for it, how it ended, what it used.

    Owned by one leased turn. Waits are reported once, by the worker that began the turn: a successor knows only its own
    part. Times in the row are the database's, so no two clocks are compared.
    """

    def __init__(self, claim: Claim, turn: Turn, clock: Clock, *, is_new: bool) -> None:
        self._monotonic = clock.monotonic
        self._accepted_s = None
        if turn.read_at is not None:
            self._accepted_s = clock.monotonic() - max(0.0, (turn.read_at - turn.created_at).total_seconds())
        self._is_silent = self._is_unanswered = is_new and self._accepted_s is not None
        if is_new and claim.attempt == 0 and turn.started_at is not None:
            waited_s = (turn.started_at - turn.created_at).total_seconds()
            QUEUE_SECONDS.labels(lane_of(claim.lease.principal.roles).value).observe(max(0.0, waited_s))

    def note_event(self, data: AnyEvent) -> None:
        """Record an event that is about to be sent to clients."""
        if not self._is_unanswered or not isinstance(data, ChatDelta):
            return
        if self._is_silent:
            self._is_silent = False
            FIRST_TOKEN_SECONDS.observe(self._age_s())
        if data.channel == "answer":
            self._is_unanswered = False
            FIRST_ANSWER_SECONDS.observe(self._age_s())

    def note_end(self, outcome: Outcome | None, *, waited_s: float) -> None:
        """Record the committed end; None is a failure. `waited_s` is how long the turn waited for a person."""
        label = outcome.value if outcome else "failed"
        if self._is_silent and outcome is None:
            # Otherwise a turn that fails before its first token would be the slowest one, and missing from the metric.
            self._is_silent = False
            FIRST_TOKEN_SECONDS.observe(self._age_s())
        TURNS_ENDED.labels(label).inc()
        if self._accepted_s is not None:
            TURN_SECONDS.labels(label).observe(max(0.0, self._age_s() - waited_s))

    def _age_s(self) -> float:
        return self._monotonic() - (self._accepted_s or 0.0)


def count_usage(events: Iterable[UsageEvent]) -> None:
    """Count tokens and cost of booked calls."""
    for event in events:
        TOKENS.labels(event.model, "input").inc(event.input_tokens)
        TOKENS.labels(event.model, "output").inc(event.output_tokens)
        CACHED_TOKENS.labels(event.model, "read").inc(event.cache_read_tokens)
        CACHED_TOKENS.labels(event.model, "written").inc(event.cache_write_tokens)
        if event.cost_known:
            COST_USD.labels(event.model).inc(event.cost_usd)
        else:
            UNPRICED_CALLS.labels(event.model).inc()
