"""An engine in memory with socket pairs as supervisors: for what a real engine does too rarely or too slowly."""

import asyncio
import contextlib
import socket
import struct
from collections import defaultdict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from everturn.execution.framing import encode_frame
from everturn.execution.messages import Posture, Ready, UidRange
from everturn.execution.profiles import ExecutionProfile
from everturn.execution.records import MessageClass, build_message
from exec_supervisor.broker.bodies import Body
from exec_supervisor.broker.docker_engine import EngineEvent, InUse, LabeledObject, NotThere
from exec_supervisor.broker.events import EventWatch
from exec_supervisor.broker.metrics import BrokerMetrics
from exec_supervisor.broker.pairs import Pairs, open_pairs
from exec_supervisor.broker.stdio import AttachedStdio

POSTURE = Posture("containers", "python", 1001, "user", "none", "cgroup", "cgroup", "tmpfs", "filter")
PROFILES = {"default": ExecutionProfile(), "warm": ExecutionProfile(warm=2, preload=("numpy",))}


def pack(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(data)) + data


@dataclass(slots=True)
class Container:
    """A container, and for a supervisor the engine's end of its attachment."""

    labels: dict[str, str]
    started: bool = False
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None

    def say(self, message: MessageClass) -> None:
        self.say_raw(pack(1, encode_frame(build_message(message))))

    def say_raw(self, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(data)

    def hang_up(self) -> None:
        assert self.writer is not None
        self.writer.close()


@dataclass(slots=True)
class MemoryEngine:
    """`failing` are errors by the name of a call; `first_words` is what a supervisor says when it is started.

    At the end of its stdin a supervisor ends and takes its executor along, unless it is `stubborn`.
    """

    failing: dict[str, Exception] = field(default_factory=dict[str, Exception])
    first_words: bytes = pack(1, encode_frame(build_message(Ready(POSTURE))))
    containers: dict[str, Container] = field(default_factory=dict[str, Container])
    bodies: dict[str, Body] = field(default_factory=dict[str, Body])
    volumes: set[str] = field(default_factory=set[str])
    calls: list[str] = field(default_factory=list[str])
    happened: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    stubborn: bool = False
    heard: "asyncio.Queue[bytes]" = field(default_factory=asyncio.Queue[bytes])
    lifelines: "list[asyncio.Task[None]]" = field(default_factory=list["asyncio.Task[None]"])
    events: "asyncio.Queue[EngineEvent]" = field(default_factory=asyncio.Queue[EngineEvent])

    async def create(self, name: str, body: Body) -> None:
        self._note("create", name)
        self.containers[name] = Container(cast("dict[str, str]", body["Labels"]))
        self.bodies[name] = body
        self.volumes.add(name.rpartition("-")[0])

    async def attach(self, name: str) -> AttachedStdio:
        self._note("attach", name)
        ours, theirs = socket.socketpair()
        container = self.containers[name]
        container.reader, container.writer = await asyncio.open_connection(sock=theirs)
        self.lifelines.append(asyncio.create_task(self._follow_lifeline(name, container.reader)))
        return AttachedStdio(*await asyncio.open_connection(sock=ours))

    async def _follow_lifeline(self, name: str, stdin: asyncio.StreamReader) -> None:
        while data := await stdin.read(1 << 16):
            self.heard.put_nowait(data)
        self.happened["end of stdin"].set()
        pair = name.rpartition("-")[0]
        for container in [entry for entry in self.containers if entry.startswith(pair)]:
            if not self.stubborn:
                self.remove(container)

    def remove(self, name: str) -> None:
        """The container is removed, as the engine's event stream then reports."""
        self.tell("destroy", name)
        container = self.containers.pop(name)
        if container.writer is not None:
            container.writer.close()

    async def start(self, name: str) -> None:
        self._note("start", name)
        container = self.containers[name]
        container.started = True
        if container.writer is not None:
            container.say_raw(self.first_words)

    async def load_image(self, name: str) -> str:
        self._note("load_image", name)
        return f"sha256:{name.rpartition('-')[2]}"

    async def kill_and_remove(self, name: str) -> None:
        self._note("kill_and_remove", name)
        if name not in self.containers:
            raise NotThere(name)
        self.remove(name)

    async def remove_volume(self, name: str) -> None:
        self._note("remove_volume", name)
        if any(container.startswith(name) for container in self.containers):
            raise InUse(name)
        if name not in self.volumes:
            raise NotThere(name)
        self.volumes.remove(name)

    async def load_labeled(self, label: str) -> list[LabeledObject]:
        self._note("load_labeled", label)
        return [LabeledObject(name, False, container.labels) for name, container in self.containers.items()]

    async def watch(self, label: str, since_s: float) -> AsyncGenerator[EngineEvent]:
        self._note("watch", label)
        while True:
            yield await self.events.get()

    def tell(self, action: str, name: str, **attributes: str) -> None:
        """Have the event stream say something of a container."""
        self.events.put_nowait(EngineEvent(action, {**self.containers[name].labels, **attributes}, 1.0))

    def find(self, role: str) -> str:
        """The name of the one container of this role."""
        [name] = [name for name in self.containers if name.endswith(role)]
        return name

    def _note(self, call: str, name: str) -> None:
        self.calls.append(call)
        self.happened[call].set()
        self.happened[f"{call} {name.rpartition('-')[2]}"].set()
        for key in (call, f"{call} {name.rpartition('-')[2]}"):
            if error := self.failing.get(key):
                raise error


@pytest.fixture
async def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
def registry() -> CollectorRegistry:
    """What the broker counts of `pairs`."""
    return CollectorRegistry()


@pytest.fixture
async def pairs(engine: MemoryEngine, registry: CollectorRegistry) -> AsyncGenerator[Pairs]:
    """Room for three pairs; waits for their end after the test."""
    watch = EventWatch(engine, "b1", asyncio.Event())
    following = asyncio.create_task(watch.run())
    metrics = BrokerMetrics(registry)
    async with open_pairs(
        engine,
        watch,
        PROFILES,
        broker_id="b1",
        max_pairs=3,
        uids=UidRange(21_000, 21_003),
        seccomp=None,
        metrics=metrics,
        slot_wait_s=0.2,
    ) as opened:
        yield opened
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following
    assert not engine.containers
    assert not engine.volumes
