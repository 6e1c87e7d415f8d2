"""Which leftovers are orphans, and how they are removed."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from exec_supervisor.broker.engine import EngineDown, EngineRefused, Leftover
from exec_supervisor.broker.metrics import BrokerMetrics
from exec_supervisor.broker.reaper import Reaper, find_orphans

NOW_S = 1000.0


def leftover(name: str, pair: str = "dead", expires_s: int = 2000, *, is_own: bool = True):
    return Leftover(name, "container", pair, is_own, expires_s)


class Engine:
    """What the reaper uses of an engine. The answer False means that a leftover was already gone."""

    def __init__(self, found: list[Leftover], answers: dict[str, Exception | bool] | None = None) -> None:
        self.found = found
        self.answers = answers or {}
        self.removed: list[str] = []
        self.changed = asyncio.Event()
        self.listed = asyncio.Event()

    async def load_leftovers(self) -> list[Leftover]:
        self.listed.set()
        self.answer("list")
        return self.found

    async def remove_leftover(self, leftover: Leftover) -> bool:
        if not self.answer(leftover.name):
            return False
        self.removed.append(leftover.name)
        self.changed.set()
        return True

    def answer(self, name: str) -> bool:
        answer = self.answers.get(name, True)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Live:
    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)
        self.expired = 0

    def end_expired(self) -> None:
        self.expired += 1


def reaper(
    engine: Engine, live: Live, connected: asyncio.Event | None = None, registry: CollectorRegistry | None = None
) -> Reaper:
    return Reaper(
        engine,
        live,
        BrokerMetrics(registry or CollectorRegistry()),
        connected=connected or asyncio.Event(),
        clock=lambda: NOW_S,
    )  # type: ignore[arg-type]


def test_unknown_pairs_with_our_id_are_orphans():
    found = [leftover("a"), leftover("b", pair="live"), leftover("c", is_own=False)]

    assert [entry.name for entry in find_orphans(found, frozenset({"live"}), NOW_S)] == ["a"]


@pytest.mark.parametrize(("expires_s", "orphan"), [(1001, False), (1000, True), (0, True)])
def test_expired_resources_of_any_broker_are_removed(expires_s: int, orphan: bool):
    found = [leftover("a", "live", expires_s, is_own=False)]

    assert bool(find_orphans(found, frozenset({"live"}), NOW_S)) is orphan


async def test_orphans_are_removed_in_the_order_of_the_engine_and_counted_by_kind():
    engine, live, registry = Engine([leftover("c1"), leftover("c2"), leftover("v")]), Live(), CollectorRegistry()

    assert await reaper(engine, live, registry=registry).sweep()
    assert engine.removed == ["c1", "c2", "v"]
    assert live.expired == 1
    assert registry.get_sample_value("everturn_broker_reaped_total", {"kind": "container"}) == 3


async def test_what_is_already_gone_is_neither_counted_nor_tried_again():
    engine, registry = Engine([leftover("gone")], {"gone": False}), CollectorRegistry()

    assert await reaper(engine, Live(), registry=registry).sweep()
    assert registry.get_sample_value("everturn_broker_reaped_total", {"kind": "container"}) is None


async def test_one_leftover_that_stays_does_not_block_the_others():
    engine = Engine([leftover("stuck"), leftover("c1")], {"stuck": EngineRefused("device or resource busy")})

    assert not await reaper(engine, Live()).sweep()
    assert engine.removed == ["c1"]


async def test_an_unavailable_engine_is_reported_to_the_caller():
    with pytest.raises(EngineDown):
        await reaper(Engine([], {"list": EngineDown()}), Live()).sweep()


async def test_a_recovered_engine_is_swept_at_once():
    engine, connected = Engine([]), asyncio.Event()
    running = asyncio.create_task(reaper(engine, Live(), connected).run())
    async with asyncio.timeout(10):
        await engine.listed.wait()

    engine.found = [leftover("c1")]
    connected.set()
    async with asyncio.timeout(10):
        await engine.changed.wait()
    running.cancel()

    assert engine.removed == ["c1"]
