"""A clock that only a test moves."""

from datetime import UTC, datetime, timedelta

from everturn.core.ids import ArtifactId, CallId, CollectionId, ConversationId, PlanId, SignalId, TurnId, make_id

BEGINNING = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

_FIRST_MS = 1_772_366_400_000
"""2026-03-01 12:00 UTC."""


class FixedClock:
    """Implements Clock. Both of its times move together. With `tick_ms`, each reading of the date is that much later
    than the one before, so that dates show in which order they were read."""

    def __init__(self, now: datetime = BEGINNING, *, tick_ms: int = 0) -> None:
        self._now = now
        self._tick = timedelta(milliseconds=tick_ms)
        self._monotonic = 0.0

    def now(self) -> datetime:
        self._now += self._tick
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds


class SequentialIds:
    """Implements Ids: well-formed, in order of the calls, each prefix counted separately from 1. Tests can predict
    them, and recorded turns don't change from run to run."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def _make(self, prefix: str) -> str:
        count = self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return make_id(prefix, _FIRST_MS + count, count.to_bytes(10))

    def conversation(self) -> ConversationId:
        return ConversationId(self._make("conv"))

    def turn(self) -> TurnId:
        return TurnId(self._make("turn"))

    def call(self) -> CallId:
        return CallId(self._make("call"))

    def artifact(self) -> ArtifactId:
        return ArtifactId(self._make("art"))

    def signal(self) -> SignalId:
        return SignalId(self._make("sig"))

    def plan(self) -> PlanId:
        return PlanId(self._make("plan"))

    def collection(self) -> CollectionId:
        return CollectionId(self._make("coll"))
