"""A pair as two containers and a volume, in an engine in memory: what a real one does too rarely or too slowly."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from helpers.memory_pairs import MISSING_IMAGE, READY
from helpers.pair_engine_contract import PLAN, PairEngineContract, Subject, drain, started, watching

from exec_supervisor.broker import docker_pairs
from exec_supervisor.broker.docker_bodies import Body
from exec_supervisor.broker.docker_engine import EngineEvent, InUse, LabeledObject, NotThere
from exec_supervisor.broker.docker_pairs import DockerPairs
from exec_supervisor.broker.docker_stdio import AttachedStdio
from exec_supervisor.broker.engine import EngineDown, EngineRefused, ImageMissing, Leftover, PairEvent

VOLUME = f"everturn-{PLAN.name}"
SUPERVISOR, EXECUTOR = f"{VOLUME}-supervisor", f"{VOLUME}-executor"


@dataclass(slots=True)
class Container:
    """A container, and for a supervisor the engine's end of its attachment."""

    labels: dict[str, str]
    writer: asyncio.StreamWriter | None = None


@dataclass(slots=True)
class MemoryEngine:
    """`failing` are errors by the name of a call, with or without a role. A pair ends at the end of its stdin."""

    failing: dict[str, Exception] = field(default_factory=dict[str, Exception])
    containers: dict[str, Container] = field(default_factory=dict[str, Container])
    volumes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    calls: list[str] = field(default_factory=list[str])
    since_s: list[float] = field(default_factory=list[float])
    detached: asyncio.Event = field(default_factory=asyncio.Event)
    lifelines: "list[asyncio.Task[None]]" = field(default_factory=list["asyncio.Task[None]"])
    events: "asyncio.Queue[EngineEvent]" = field(default_factory=asyncio.Queue[EngineEvent])

    @property
    def left(self) -> set[str]:
        return {*self.containers, *self.volumes}

    async def create(self, name: str, body: Body) -> None:
        self.note("create", name)
        if body["Image"] == MISSING_IMAGE:
            raise ImageMissing(MISSING_IMAGE)
        self.containers[name] = Container(cast("dict[str, str]", body["Labels"]))
        self.volumes[name.rpartition("-")[0]] = self.containers[name].labels

    async def attach(self, name: str) -> AttachedStdio:
        self.note("attach", name)
        ours, theirs = socket.socketpair()
        reader, self.containers[name].writer = await asyncio.open_connection(sock=theirs)
        self.lifelines.append(asyncio.create_task(self.follow_lifeline(name, reader)))
        return AttachedStdio(*await asyncio.open_connection(sock=ours))

    async def follow_lifeline(self, name: str, stdin: asyncio.StreamReader) -> None:
        while await stdin.read(1 << 16):
            pass
        self.detached.set()
        for container in [entry for entry in self.containers if entry.startswith(name.rpartition("-")[0])]:
            self.destroy(container)

    def destroy(self, name: str) -> None:
        """The container is removed, as the engine's event stream then reports."""
        self.tell("destroy", name)
        if (writer := self.containers.pop(name).writer) is not None:
            writer.close()

    async def start(self, name: str) -> None:
        self.note("start", name)
        if (writer := self.containers[name].writer) is not None:
            writer.write(struct.pack(">BxxxI", 1, len(READY)) + READY)

    async def load_image(self, name: str) -> str:
        self.note("load_image", name)
        return f"sha256:{name.rpartition('-')[2]}"

    async def kill_and_remove(self, name: str) -> None:
        self.note("kill_and_remove", name)
        if name not in self.containers:
            raise NotThere(name)
        self.destroy(name)

    async def remove_volume(self, name: str) -> None:
        self.note("remove_volume", name)
        if any(container.startswith(name) for container in self.containers):
            raise InUse(name)
        if self.volumes.pop(name, None) is None:
            raise NotThere(name)

    async def load_labeled(self, label: str) -> list[LabeledObject]:
        self.note("load_labeled", label)
        return [
            *(LabeledObject(name, True, labels) for name, labels in self.volumes.items()),
            *(LabeledObject(name, False, container.labels) for name, container in self.containers.items()),
        ]

    @contextlib.asynccontextmanager
    async def watch(self, label: str, since_s: float) -> AsyncIterator[AsyncIterator[EngineEvent]]:
        self.note("watch", label)
        self.since_s.append(since_s)
        yield self.read_events()

    async def read_events(self) -> AsyncIterator[EngineEvent]:
        while True:
            yield await self.events.get()

    def tell(self, action: str, name: str, at_s: float = 1.0, **attributes: str) -> None:
        """Report an event of a container on the event stream."""
        self.events.put_nowait(EngineEvent(action, {**self.containers[name].labels, **attributes}, at_s))

    def note(self, call: str, name: str) -> None:
        self.calls.append(named := f"{call} {name.rpartition('-')[2]}")
        for key in (call, named):
            if error := self.failing.get(key):
                raise error


@pytest.fixture
async def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
def subject(engine: MemoryEngine) -> Subject:
    failing = ("create", "load_image", "kill_and_remove", "load_labeled", "watch")
    down: Any = MemoryEngine(failing={call: EngineDown("away") for call in failing})
    pairs, others = (DockerPairs(cast("Any", engine), broker) for broker in ("b1", "b2"))
    return Subject(
        pairs,
        others,
        DockerPairs(down, "b1"),
        PLAN,
        lambda name: engine.tell("die", f"everturn-{name}-executor", exitCode="137"),
        lambda: engine.left,
    )


@pytest.fixture
def pairs(subject: Subject) -> DockerPairs:
    return cast("DockerPairs", subject.engine)


class TestDockerPairs(PairEngineContract):
    """With an engine in memory; tests/sandbox has the same with a real one."""


async def test_the_supervisor_is_attached_before_it_is_started(engine: MemoryEngine, subject: Subject):
    async with started(subject):
        supervisor = [call for call in engine.calls if call.endswith("supervisor")]

    assert supervisor == ["create supervisor", "attach supervisor", "start supervisor"]


@pytest.mark.parametrize("error", [EngineRefused("no room"), EngineDown("away"), NotThere("gone")])
@pytest.mark.parametrize(
    "call", ["create executor", "create supervisor", "attach", "start executor", "start supervisor"]
)
async def test_nothing_is_left_after_any_refused_call(
    engine: MemoryEngine, pairs: DockerPairs, call: str, error: Exception
):
    engine.failing[call] = error

    with pytest.raises(type(error)):
        await pairs.start(PLAN)

    assert await pairs.remove(PLAN.name) == []
    assert not engine.left
    if engine.lifelines:
        await engine.detached.wait()


async def test_a_half_that_has_ended_has_no_image(engine: MemoryEngine, subject: Subject):
    engine.failing["load_image supervisor"] = NotThere("gone")

    async with started(subject):
        with pytest.raises(docker_pairs.StartFailed, match="the supervisor ended immediately"):
            await subject.engine.load_images(PLAN.name)


async def test_containers_that_ended_by_themselves_are_not_killed(engine: MemoryEngine, subject: Subject):
    async with started(subject) as line, watching(subject.engine) as events:
        line.close_input()
        assert (await events.get()).what == "pair_ended"

    assert not engine.left
    assert not any(call.startswith("kill_and_remove") for call in engine.calls)


async def test_a_failed_removal_waits_for_that_of_the_other_container(
    engine: MemoryEngine, subject: Subject, monkeypatch: pytest.MonkeyPatch
):
    remove = MemoryEngine.kill_and_remove

    async def remove_slowly(engine: MemoryEngine, name: str) -> None:
        await asyncio.sleep(0.05 if name == SUPERVISOR else 0)
        await remove(engine, name)

    async with started(subject), watching(subject.engine):
        with monkeypatch.context() as patched:
            patched.setattr(MemoryEngine, "kill_and_remove", remove_slowly)
            engine.failing["kill_and_remove executor"] = EngineRefused("busy")
            problems = await subject.engine.remove(PLAN.name)

        assert len(problems) == 1
        assert (SUPERVISOR in engine.left, VOLUME in engine.left) == (False, True)
        engine.failing.clear()


async def test_all_that_cannot_be_removed_is_reported(engine: MemoryEngine, subject: Subject):
    async with started(subject), watching(subject.engine):
        engine.failing["kill_and_remove executor"] = EngineRefused("busy")
        engine.failing["kill_and_remove supervisor"] = EngineDown("away")
        halves = await subject.engine.remove(PLAN.name)
        engine.failing = {"remove_volume": EngineRefused("broken")}
        volume = await subject.engine.remove(PLAN.name)
        engine.failing.clear()

    assert [problem.partition(":")[0] for problem in sorted(halves)] == ["executor", "supervisor"]
    assert [problem.partition(":")[0] for problem in volume] == ["volume"]


async def test_a_container_that_is_already_being_removed_is_waited_for(engine: MemoryEngine, subject: Subject):
    async with started(subject), watching(subject.engine):
        engine.failing["kill_and_remove supervisor"] = InUse("removal in progress")
        removing = asyncio.create_task(cast("DockerPairs", subject.engine).remove(PLAN.name))
        await asyncio.sleep(0.05)
        early = removing.done()
        engine.destroy(SUPERVISOR)
        problems = await removing
        engine.failing.clear()

    assert (early, problems) == (False, [])


@pytest.mark.parametrize(("refusals", "left"), [(3, set()), (99, {VOLUME})])
async def test_a_volume_that_is_still_in_use_is_tried_for_a_while(
    engine: MemoryEngine, subject: Subject, monkeypatch: pytest.MonkeyPatch, refusals: int, left: set[str]
):
    remove, tries = MemoryEngine.remove_volume, iter(range(refusals))

    async def remove_later(engine: MemoryEngine, name: str) -> None:
        if next(tries, None) is not None:
            raise InUse(name)
        await remove(engine, name)

    async with started(subject), watching(subject.engine):
        with monkeypatch.context() as patched:
            patched.setattr(docker_pairs, "_VOLUME_PAUSE_S", 0.001)
            patched.setattr(MemoryEngine, "remove_volume", remove_later)
            problems = await subject.engine.remove(PLAN.name)

        assert (engine.left, bool(problems)) == (left, bool(left))


async def test_removal_does_not_wait_long_for_events_that_do_not_come(engine: MemoryEngine, subject: Subject):
    begun_s = time.monotonic()
    async with started(subject):
        assert await subject.engine.remove(PLAN.name) == []

    assert docker_pairs.EVENT_LAG_S <= time.monotonic() - begun_s < 10 * docker_pairs.EVENT_LAG_S


async def test_only_the_executors_memory_and_end_are_events_and_both_removals_are_one(
    engine: MemoryEngine, subject: Subject
):
    async with started(subject), watching(subject.engine) as events:
        for name in (SUPERVISOR, EXECUTOR):
            engine.tell("oom", name)
            engine.tell("die", name, exitCode="3")
        engine.destroy(SUPERVISOR)
        engine.destroy(EXECUTOR)
        await asyncio.sleep(0.05)
        seen = drain(events)

    assert seen == [
        PairEvent(PLAN.name, "memory_limit"),
        PairEvent(PLAN.name, "executor_ended", "3"),
        PairEvent(PLAN.name, "pair_ended"),
    ]


async def test_a_watch_resumes_from_the_last_event(engine: MemoryEngine, subject: Subject):
    later_s = time.time() + 60
    async with started(subject):
        async with watching(subject.engine) as events:
            engine.tell("oom", EXECUTOR, later_s)
            await events.get()
        async with watching(subject.engine):
            pass

    assert engine.since_s[1] == later_s > engine.since_s[0]


async def test_leftovers_list_containers_first_and_without_a_time_are_expired(engine: MemoryEngine):
    pairs = DockerPairs(cast("Any", engine), "b1")
    labels = {"everturn.broker": "b1", "everturn.pair": "p1", "everturn.expires": "never"}
    engine.volumes["v"], engine.containers["c"] = labels, Container(labels)

    found = await pairs.load_leftovers()

    assert found == [Leftover("c", "container", "p1", True, 0), Leftover("v", "volume", "p1", True, 0)]
    assert [await pairs.remove_leftover(entry) for entry in [*found, replace(found[0], name="x")]] == [
        True,
        True,
        False,
    ]
