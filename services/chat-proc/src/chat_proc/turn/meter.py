"""The usage of a turn, and its metrics."""

from collections.abc import Iterable, Sequence

import structlog

from everturn.core.clock import Clock
from everturn.core.identity import lane_of
from everturn.core.metrics import (
    CACHED_TOKENS,
    COST_USD,
    FIRST_ANSWER_SECONDS,
    FIRST_TOKEN_SECONDS,
    QUEUE_SECONDS,
    TOKENS,
    TURN_SECONDS,
    TURNS_ENDED,
    UNPRICED_CALLS,
)
from everturn.events.model import AnyEvent, ChatDelta
from everturn.timeline.turns import Outcome, Turn, TurnUsage
from everturn.turns.model import Claim, UsageEvent

_log = structlog.get_logger(__name__)


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


def add_usage(usage: TurnUsage, events: Sequence[UsageEvent]) -> TurnUsage:
    """The sum with more model calls."""
    if not events:
        return usage
    return TurnUsage(
        input_tokens=usage.input_tokens + sum(event.input_tokens for event in events),
        output_tokens=usage.output_tokens + sum(event.output_tokens for event in events),
        cache_read_tokens=usage.cache_read_tokens + sum(event.cache_read_tokens for event in events),
        cost_usd=usage.cost_usd + sum(event.cost_usd for event in events),
        cost_known=usage.cost_known and all(event.cost_known for event in events),
    )


def count_usage(events: Iterable[UsageEvent]) -> None:
    """Count tokens and cost of recorded calls."""
    for event in events:
        TOKENS.labels(event.model, "input").inc(event.input_tokens)
        TOKENS.labels(event.model, "output").inc(event.output_tokens)
        CACHED_TOKENS.labels(event.model, "read").inc(event.cache_read_tokens)
        CACHED_TOKENS.labels(event.model, "written").inc(event.cache_write_tokens)
        if event.cost_known:
            COST_USD.labels(event.model).inc(event.cost_usd)
        else:
            UNPRICED_CALLS.labels(event.model).inc()
