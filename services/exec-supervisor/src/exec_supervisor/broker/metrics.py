"""The broker's Prometheus metrics: pairs by state, starts and their cost, and failures."""

from collections.abc import Callable
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from everturn.execution.broker_messages import PairState

_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 30.0, 60.0)


class BrokerMetrics:
    """Counters of one broker, in a registry of its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pairs = Gauge("everturn_broker_pairs", "Pairs by state.", ["state"], registry=registry)
        self.starts = Counter(
            "everturn_broker_starts", "Pairs provided, by kind: warm or cold.", ["kind"], registry=registry
        )
        self.boot_s = Histogram(
            "everturn_broker_boot_seconds",
            "Time from the first engine call to the handshake.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.wait_s = Histogram(
            "everturn_broker_slot_wait_seconds",
            "How long a request waited for room for a pair.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.failures = Counter(
            "everturn_broker_failures", "Pairs that could not be provided, by reason.", ["reason"], registry=registry
        )
        self.warm_lost = Counter(
            "everturn_broker_warm_lost",
            "Warm pairs that were stopped unused, by reason.",
            ["reason"],
            registry=registry,
        )
        self.reaped = Counter(
            "everturn_broker_reaped",
            "Leftovers that were removed, by kind: container, volume or pod.",
            ["kind"],
            registry=registry,
        )

    def count_pairs_by(self, count: Callable[[PairState], int]) -> None:
        """Set the function that the page calls for the number of pairs in a state."""
        for state in get_args(PairState):
            self._pairs.labels(state).set_function(lambda state=state: count(state))
