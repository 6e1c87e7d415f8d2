"""Which containers and volumes are orphans, and how they are removed."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from exec_supervisor.broker.docker_engine import EngineDown, EngineRefused, InUse, LabeledObject, NotThere
from exec_supervisor.broker.metrics import BrokerMetrics
from exec_supervisor.broker.reaper import Reaper, find_orphans

NOW_S = 1000.0


def leftover(name: str, broker: str = "mine", pair: str = "dead", expires: str = "2000", *, volume: bool = False):
    labels = {"everturn.broker": broker, "everturn.pair": pair, "everturn.expires": expires}
    return LabeledObject(name, volume, labels)


class Engine:
    """What the reaper uses of an engine."""

    def __init__(self, found: list[LabeledObject], answers: dict[str, Exception] | None = None) -> None:
        self.found = found
        self.answers = answers or {}
        self.removed: list[str] = []
        self.changed = asyncio.Event()
        self.listed = asyncio.Event()

    async def load_labeled(self, label: str) -> list[LabeledObject]:
        assert label == "everturn.broker"
        self.listed.set()
        if error := self.answers.get("list"):
            raise error
        return self.found

    async def kill_and_remove(self, name: str) -> None:
        if error := self.answers.get(name):
            raise error
        self.removed.append(name)
        self.changed.set()

    async def remove_volume(self, name: str) -> None:
        await self.kill_and_remove(name)


class Live:
    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)
        self.expired = 0

    def end_expired(self) -> None:
        self.expired += 1


def reaper(engine: Engine, live: Live, connected: asyncio.Event | None = None) -> Reaper:
    return Reaper(
        engine,
        live,
        BrokerMetrics(CollectorRegistry()),
        "mine",
        connected=connected or asyncio.Event(),
        clock=lambda: NOW_S,
    )  # type: ignore[arg-type]


def test_unknown_pairs_with_our_id_are_orphans():
    found = [leftover("a"), leftover("b", pair="live"), leftover("c", broker="other")]

    assert [entry.name for entry in find_orphans(found, "mine", frozenset({"live"}), NOW_S)] == ["a"]


@pytest.mark.parametrize(("expires", "owned"), [("1001", True), ("1000", False), ("", False), ("never", False)])
def test_expired_resources_of_any_broker_are_removed(expires: str, owned: bool):
    found = [leftover("a", broker="other", expires=expires)]

    assert bool(find_orphans(found, "mine", frozenset(), NOW_S)) is not owned


async def test_containers_go_before_the_volumes_they_use():
    engine = Engine([leftover("v", volume=True), leftover("c1"), leftover("c2")])
    live = Live()

    assert await reaper(engine, live).sweep()
    assert engine.removed == ["c1", "c2", "v"]
    assert live.expired == 1


async def test_objects_in_use_are_retried_and_missing_ones_ignored():
    engine = Engine(
        [leftover("busy"), leftover("gone"), leftover("v", volume=True)], {"busy": InUse(), "gone": NotThere()}
    )

    assert not await reaper(engine, Live()).sweep()
    assert engine.removed == ["v"]


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
