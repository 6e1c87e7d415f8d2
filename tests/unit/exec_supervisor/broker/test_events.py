"""The engine's events about pairs: which ones count, and that an interrupted stream loses none that it still sends."""

import asyncio
import time
from collections.abc import AsyncGenerator

from exec_supervisor.broker.docker_engine import CONNECTED, EngineDown, EngineEvent
from exec_supervisor.broker.events import EventWatch, PairSigns


def event(action: str, role: str = "executor", pair: str = "p1", at_s: float = 0.0, **attributes: str) -> EngineEvent:
    return EngineEvent(action, {"everturn.pair": pair, "everturn.role": role, **attributes}, at_s)


def test_memory_counts_when_the_executor_ran_out_of_it():
    signs = PairSigns()

    signs.take(event("oom", "supervisor"))
    before = signs.hits
    signs.take(event("oom"))
    signs.take(event("oom"))

    assert (before, signs.hits) == ((), ("memory",))


def test_the_ends_of_both_halves_are_distinguished():
    signs = PairSigns()

    signs.take(event("die", exitCode="3"))

    assert signs.executor_died.is_set()
    assert not signs.supervisor_died.is_set()
    assert signs.executor_exit == "3"


async def test_a_pair_is_gone_when_both_containers_are():
    signs = PairSigns()
    waiting = asyncio.create_task(signs.wait_until_gone())

    signs.take(event("destroy", "supervisor"))
    await asyncio.sleep(0)
    early = waiting.done()
    signs.take(event("destroy"))
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
    signs = watch.watch("p1")
    following = asyncio.create_task(watch.run())

    await signs.wait_until_gone()
    following.cancel()

    assert engine.asked_since_s[1] == later_s
    assert signs.hits == ("memory",)


async def test_events_of_unwatched_pairs_are_ignored():
    engine = BreakingEngine([event("oom", pair="p2"), event("oom", pair="p3"), event("die")])
    watch = EventWatch(engine, "b1", asyncio.Event())  # type: ignore[arg-type]
    signs, forgotten = watch.watch("p1"), watch.watch("p3")
    watch.forget("p3")
    following = asyncio.create_task(watch.run())

    await signs.executor_died.wait()
    following.cancel()

    assert (signs.hits, forgotten.hits) == ((), ())


async def test_watchers_are_notified_when_the_engine_is_back():
    back = asyncio.Event()
    engine = BreakingEngine([], [EngineEvent(CONNECTED, {}, 0.0)])
    following = asyncio.create_task(EventWatch(engine, "b1", back).run())  # type: ignore[arg-type]

    async with asyncio.timeout(10):
        await back.wait()
    following.cancel()
