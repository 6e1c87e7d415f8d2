"""The engine's events about pairs: which ones count, and that an interrupted stream loses none that it still sends."""

import asyncio
import time
from collections.abc import AsyncGenerator

from exec_supervisor.broker.docker_engine import CONNECTED, EngineDown, EngineEvent
from exec_supervisor.broker.events import EventWatch, PairEvents


def event(action: str, role: str = "executor", pair: str = "p1", at_s: float = 0.0, **attributes: str) -> EngineEvent:
    return EngineEvent(action, {"everturn.pair": pair, "everturn.role": role, **attributes}, at_s)


def test_memory_counts_when_the_executor_ran_out_of_it():
    pair_events = PairEvents()

    pair_events.record(event("oom", "supervisor"))
    before = pair_events.hits
    pair_events.record(event("oom"))
    pair_events.record(event("oom"))

    assert (before, pair_events.hits) == ((), ("memory",))


def test_the_ends_of_both_halves_are_distinguished():
    pair_events = PairEvents()

    pair_events.record(event("die", exitCode="3"))

    assert pair_events.executor_died.is_set()
    assert not pair_events.supervisor_died.is_set()
    assert pair_events.executor_exit == "3"


async def test_a_pair_is_gone_when_both_containers_are():
    pair_events = PairEvents()
    waiting = asyncio.create_task(pair_events.wait_until_gone())

    pair_events.record(event("destroy", "supervisor"))
    await asyncio.sleep(0)
    early = waiting.done()
    pair_events.record(event("destroy"))
    await waiting

    assert not early


class BreakingEngine:
    """Its stream breaks after each batch of events; after the last it stays."""

    def __init__(self, *batches: list[EngineEvent]) -> None:
        self.batches = [*batches]
        self.asked_since_s: list[float] = []

    async def watch(self, label: str, since_s: float) -> AsyncGenerator[EngineEvent]:
        assert label == "everturn.broker=b1"
        self.asked_since_s.append(since_s)
        for event in self.batches.pop(0):
            yield event
        if self.batches:
            raise EngineDown("restarted")
        await asyncio.Event().wait()


async def test_the_event_stream_resumes_after_an_interruption():
    later_s = time.time() + 60
    engine = BreakingEngine([event("oom", at_s=later_s)], [event("destroy"), event("destroy", "supervisor")])
    watch = EventWatch(engine, "b1", asyncio.Event())  # type: ignore[arg-type]
    pair_events = watch.watch("p1")
    following = asyncio.create_task(watch.run())

    await pair_events.wait_until_gone()
    following.cancel()

    assert engine.asked_since_s[1] == later_s
    assert pair_events.hits == ("memory",)


async def test_events_of_unwatched_pairs_are_ignored():
    engine = BreakingEngine([event("oom", pair="p2"), event("oom", pair="p3"), event("die")])
    watch = EventWatch(engine, "b1", asyncio.Event())  # type: ignore[arg-type]
    pair_events, forgotten = watch.watch("p1"), watch.watch("p3")
    watch.forget("p3")
    following = asyncio.create_task(watch.run())

    await pair_events.executor_died.wait()
    following.cancel()

    assert (pair_events.hits, forgotten.hits) == ((), ())


async def test_watchers_are_notified_when_the_engine_is_back():
    back = asyncio.Event()
    engine = BreakingEngine([], [EngineEvent(CONNECTED, {}, 0.0)])
    following = asyncio.create_task(EventWatch(engine, "b1", back).run())  # type: ignore[arg-type]

    async with asyncio.timeout(10):
        await back.wait()
    following.cancel()
