"""How many turns wait on which lane, for whoever reads the metrics: looked up when they are, and rarely."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

import structlog

from everturn.errors import Unavailable
from everturn.model.identity import Lane
from everturn.ports.limits.queue import Queue
from ingress.admission.metrics import IngressMetrics

KEEP_S: Final = 5.0
"""How old the numbers may be: the page needs no credential, so reading it often must not be work."""
LIMIT_S: Final = 2.0

_log = structlog.get_logger(__name__)


class QueueWatch:
    """Sets the gauges of the queue. Where it can't be counted they say nothing instead of what was true once."""

    def __init__(self, queue: Queue, metrics: IngressMetrics, *, monotonic: Callable[[], float]) -> None:
        self._queue = queue
        self._metrics = metrics
        self._monotonic = monotonic
        self._looked_at = -math.inf
        self._looking = asyncio.Lock()

    async def look(self) -> None:
        """Takes two seconds at most."""
        async with self._looking:
            if self._monotonic() - self._looked_at <= KEEP_S:
                return
            self._looked_at = self._monotonic()
            self._metrics.queued.clear()
            self._metrics.oldest_queued.clear()
            try:
                async with asyncio.timeout(LIMIT_S):
                    lanes = await self._queue.load_lanes()
            except (Unavailable, TimeoutError) as error:
                _log.warning("queue_not_counted", error=str(error))
                return
            for lane in (lane for lane in Lane if lane is not Lane.CONTROL):
                self._metrics.queued.labels(lane.value).set(lanes[lane].waiting if lane in lanes else 0)
                self._metrics.oldest_queued.labels(lane.value).set(lanes[lane].oldest_s if lane in lanes else 0.0)
