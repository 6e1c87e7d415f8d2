"""The engine's events about pairs: which ones count, and that an interrupted stream is connected again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from exec_supervisor.broker.engine import EngineDown, PairEvent
from exec_supervisor.broker.events import EventWatch, PairEvents


def test_events_are_recorded_and_may_be_repeated():
    pair_events = PairEvents()

    for _ in range(2):
        pair_events.record(PairEvent("p1", "memory_limit"))
        pair_events.record(PairEvent("p1", "executor_ended", "3"))

    assert pair_events.hits == ("memory",)
    assert (pair_events.executor_ended.is_set(), pair_events.executor_exit) == (True, "3")
    assert not pair_events.pair_ended.is_set()


class BreakingEngine:
    """Its stream breaks after each batch of events but the last. None in place of a batch: it can't be connected to."""

    def __init__(self, *batches: list[PairEvent] | None) -> None:
        self.batches = [*batches]

    @contextlib.asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[PairEvent]]:
        if (batch := self.batches.pop(0)) is None:
            raise EngineDown("away")
        yield self.read(batch)

    async def read(self, batch: list[PairEvent]) -> AsyncIterator[PairEvent]:
        for event in batch:
            yield event
        if self.batches:
            raise EngineDown("restarted")
        await asyncio.Event().wait()


async def test_the_event_stream_resumes_after_an_interruption():
    engine = BreakingEngine([PairEvent("p1", "memory_limit")], None, [PairEvent("p1", "pair_ended")])
    watch = EventWatch(engine, asyncio.Event())  # type: ignore[arg-type]
    pair_events = watch.watch("p1")
    following = asyncio.create_task(watch.run())

    await pair_events.pair_ended.wait()
    following.cancel()

    assert pair_events.hits == ("memory",)


async def test_events_of_unwatched_pairs_are_ignored():
    hits = [PairEvent(pair, "memory_limit") for pair in ("p2", "p3")]
    watch = EventWatch(BreakingEngine([*hits, PairEvent("p1", "pair_ended")]), asyncio.Event())  # type: ignore[arg-type]
    pair_events, forgotten = watch.watch("p1"), watch.watch("p3")
    watch.forget("p3")
    following = asyncio.create_task(watch.run())

    await pair_events.pair_ended.wait()
    following.cancel()

    assert (pair_events.hits, forgotten.hits) == ((), ())


async def test_watchers_are_notified_when_the_engine_is_back():
    back = asyncio.Event()
    following = asyncio.create_task(EventWatch(BreakingEngine(None, []), back).run())  # type: ignore[arg-type]

    async with asyncio.timeout(10):
        await back.wait()
    following.cancel()
