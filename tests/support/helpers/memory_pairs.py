"""A pair engine in memory with socket pairs as supervisors: for what a real engine does too rarely or too slowly."""

import asyncio
import contextlib
import socket
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from everturn.execution.framing import encode_frame
from everturn.execution.messages import Posture, Ready
from everturn.execution.records import MessageClass, build_message
from exec_supervisor.broker.engine import EngineTimes, ImageMissing, Leftover, PairEvent, PairImages, PairPlan

MISSING_IMAGE = "everturn/no-such-image:latest"
POSTURE = Posture("containers", "python", 1001, "user", "none", "cgroup", "cgroup", "tmpfs", "filter")
READY = encode_frame(build_message(Ready(POSTURE)))


class MemoryLine:
    """The broker's end of a socket pair. `errors` is what the supervisor has written to stderr."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.errors = ""

    async def read(self) -> bytes:
        return await self._reader.read(1 << 16)

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def close_input(self) -> None:
        if not self._writer.is_closing():
            self._writer.write_eof()

    def close(self) -> None:
        self._writer.transport.abort()


@dataclass(slots=True)
class MemoryPair:
    """A pair, and the engine's end of its line."""

    plan: PairPlan
    line: MemoryLine
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def say(self, message: MessageClass) -> None:
        self.say_raw(encode_frame(build_message(message)))

    def say_raw(self, data: bytes) -> None:
        self.writer.write(data)

    def hang_up(self) -> None:
        self.writer.close()


@dataclass(slots=True)
class MemoryPairs:
    """`failing` are errors by the name of a call; `first_words` is what a supervisor says when it is started.

    At the end of its stdin a supervisor ends and takes its executor along, unless it is `stubborn`.
    """

    failing: dict[str, Exception] = field(default_factory=dict[str, Exception])
    first_words: bytes = READY
    is_own: bool = True
    pairs: dict[str, MemoryPair] = field(default_factory=dict[str, MemoryPair])
    calls: list[str] = field(default_factory=list[str])
    happened: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    stubborn: bool = False
    heard: "asyncio.Queue[bytes]" = field(default_factory=asyncio.Queue[bytes])
    lifelines: "list[asyncio.Task[None]]" = field(default_factory=list["asyncio.Task[None]"])
    events: "asyncio.Queue[PairEvent]" = field(default_factory=asyncio.Queue[PairEvent])
    times: EngineTimes = field(default_factory=EngineTimes)

    async def start(self, plan: PairPlan) -> MemoryLine:
        self._note("start")
        if MISSING_IMAGE in (plan.profile.executor_image, plan.profile.supervisor_image):
            raise ImageMissing(MISSING_IMAGE)
        ours, theirs = socket.socketpair()
        line = MemoryLine(*await asyncio.open_connection(sock=ours))
        pair = self.pairs[plan.name] = MemoryPair(plan, line, *await asyncio.open_connection(sock=theirs))
        self.lifelines.append(asyncio.create_task(self._follow_lifeline(pair)))
        pair.say_raw(self.first_words)
        self.happened["started"].set()
        return line

    async def load_images(self, name: str) -> PairImages:
        self._note("load_images")
        return PairImages("sha256:executor", "sha256:supervisor")

    async def remove(self, name: str) -> list[str]:
        self.calls.append("remove")
        self.happened["remove"].set()
        if error := self.failing.get("remove"):
            return [str(error)]
        if self.end(name):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await self.events.join()
        return []

    async def load_leftovers(self) -> list[Leftover]:
        self._note("load_leftovers")
        return [Leftover(name, "pair", name, self.is_own, pair.plan.expires_s) for name, pair in self.pairs.items()]

    async def remove_leftover(self, leftover: Leftover) -> bool:
        self._note("remove_leftover")
        return self.end(leftover.name)

    @contextlib.asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[PairEvent]]:
        self._note("watch")
        yield self._read_events()

    async def _read_events(self) -> AsyncIterator[PairEvent]:
        while True:
            yield await self.events.get()
            self.events.task_done()

    async def _follow_lifeline(self, pair: MemoryPair) -> None:
        while data := await pair.reader.read(1 << 16):
            self.heard.put_nowait(data)
        self.happened["end of stdin"].set()
        if not self.stubborn:
            self.end(pair.plan.name)

    def end(self, name: str) -> bool:
        """The pair ends by itself or by force, as the event stream then reports. False if there is none."""
        if (pair := self.pairs.pop(name, None)) is None:
            return False
        self.events.put_nowait(PairEvent(name, "pair_ended"))
        pair.hang_up()
        return True

    def end_executor(self, name: str) -> None:
        """As if it were killed."""
        self.events.put_nowait(PairEvent(name, "executor_ended", "137"))

    @property
    def only(self) -> MemoryPair:
        """The one pair that there is."""
        [pair] = self.pairs.values()
        return pair

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.happened[call].set()
        if error := self.failing.get(call):
            raise error
