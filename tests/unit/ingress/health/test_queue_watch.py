"""The queue's gauges are updated rarely, on reads, and have no value while the queue can't be counted."""

from collections.abc import Mapping

from everturn.core.errors import Unavailable
from everturn.core.identity import Lane
from everturn.queue.model import LaneDepth
from everturn_testing.core import FixedClock
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.queue.queue import MemoryQueue
from ingress.health import KEEP_S, QueueWatch
from ingress.metrics import IngressMetrics


class Lanes(MemoryQueue):
    def __init__(self) -> None:
        super().__init__(MemoryPlatform())
        self.looks = 0
        self.is_away = False

    async def load_lanes(self) -> Mapping[Lane, LaneDepth]:
        self.looks += 1
        if self.is_away:
            raise Unavailable
        return {Lane.PAID: LaneDepth(3, 12.5)}


def read(metrics: IngressMetrics, lane: str) -> tuple[float | None, float | None]:
    names = ("everturn_queued_turns", "everturn_queued_turns_oldest_seconds")
    waiting, oldest = (metrics.registry.get_sample_value(name, {"lane": lane}) for name in names)
    return waiting, oldest


async def test_empty_lanes_are_reported_too() -> None:
    metrics, queue = IngressMetrics(), Lanes()

    await QueueWatch(queue, metrics, monotonic=FixedClock().monotonic).update_gauges()

    assert (read(metrics, "paid"), read(metrics, "anonymous")) == ((3, 12.5), (0, 0))


async def test_the_queue_is_not_counted_for_every_reader() -> None:
    queue, clock = Lanes(), FixedClock()
    watch = QueueWatch(queue, IngressMetrics(), monotonic=clock.monotonic)

    for _ in range(10):
        await watch.update_gauges()
    clock.advance(KEEP_S + 1)
    await watch.update_gauges()

    assert queue.looks == 2


async def test_a_database_that_is_away_leaves_no_old_number() -> None:
    metrics, queue, clock = IngressMetrics(), Lanes(), FixedClock()
    watch = QueueWatch(queue, metrics, monotonic=clock.monotonic)
    await watch.update_gauges()
    queue.is_away = True
    clock.advance(KEEP_S + 1)

    await watch.update_gauges()

    assert read(metrics, "paid") == (None, None)
