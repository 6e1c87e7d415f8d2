"""The metrics of `everturn canary`. `docs/metrics.md` lists them and is generated from here."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from everturn_client.canary import Outcome, Reading

OUTCOMES: tuple[Outcome, ...] = ("ok", "rejected", "failed", "late", "deaf")
_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class CanaryMetrics:
    """What the canary saw. All outcomes are there from the start, so that an alert sees the first of its kind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._turns = Counter(
            "everturn_canary_turns",
            "Messages of the canary, by outcome: ok, rejected, failed, late, or deaf (it ended, and no event came).",
            ["outcome"],
            registry=registry,
        )
        self._stage_seconds = Histogram(
            "everturn_canary_stage_seconds",
            "Time from the canary's request until it saw a stage of the turn: accepted, started, answering or ended.",
            ["stage"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._succeeded_at = Gauge(
            "everturn_canary_success_timestamp_seconds",
            "When the canary last got a complete answer, in Unix time; before the first one, when it started.",
            registry=registry,
        )
        self._succeeded_at.set(time.time())
        for outcome in OUTCOMES:
            self._turns.labels(outcome)

    def take(self, reading: Reading) -> None:
        self._turns.labels(reading.outcome).inc()
        for stage, seconds in reading.seen_s.items():
            self._stage_seconds.labels(stage).observe(seconds)
        if reading.outcome == "ok":
            self._succeeded_at.set(time.time())
