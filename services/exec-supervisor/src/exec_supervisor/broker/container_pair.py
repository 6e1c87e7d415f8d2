"""One pair from creation to end: two containers, their volume, and the attached streams of the supervisor."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from everturn.core.errors import EverturnError
from everturn.execution.broker_messages import PairState
from everturn.execution.framing import FrameDecoder, FrameError
from everturn.execution.messages import PIPE_FRAME_BYTES, Finished, LimitName, Posture, Ready
from everturn.execution.profiles import ExecutionProfile
from everturn.execution.records import BadMessage, parse_message
from exec_supervisor.broker.bodies import (
    PairLabels,
    Role,
    build_executor,
    build_supervisor,
    name_container,
    name_volume,
)
from exec_supervisor.broker.docker_engine import Engine, EngineDown, EngineRefused, InUse, NotThere
from exec_supervisor.broker.events import PairEvents
from exec_supervisor.broker.seccomp_profile import INTERNET, build_profile
from exec_supervisor.broker.stdio import AttachedStdio

_log = structlog.stdlib.get_logger()

BOOT_TIMEOUT_S: Final = 60.0
"""The supervisor gives its executor 30 s; creating and starting containers on a busy machine takes additional time."""

LIFELINE_S: Final = 2.0
LAST_OUTPUT_S: Final = 1.0
EVENT_LAG_S: Final = 0.5
REMOVAL_S: Final = 60.0
"""Takes 0.1 s on an idle machine, and seconds when twenty pairs end at once on a busy one."""

_VOLUME_TRIES: Final = 20
_VOLUME_PAUSE_S: Final = 0.1


class StartFailed(EverturnError):
    """The pair did not boot."""


@dataclass(frozen=True, slots=True)
class PairPlan:
    """The plan of a pair. With `seccomp` None the engine's default profile applies.

    A pair that a run already waits for preloads nothing: its program may not need it.
    """

    labels: PairLabels
    profile: ExecutionProfile
    seccomp: Mapping[str, object] | None
    executor_uid: int

    @property
    def supervisor_seccomp(self) -> Mapping[str, object] | None:
        """The executor's profile; plus the internet address families if the profile gives the supervisor a network."""
        if self.seccomp is None or self.profile.network_mode == "none":
            return self.seccomp
        return build_profile(INTERNET)

    @property
    def preload(self) -> tuple[str, ...]:
        return () if self.labels.run_id else self.profile.preload

    @property
    def name(self) -> str:
        return self.labels.pair


@dataclass(frozen=True, slots=True)
class BootedPair:
    """A pair that is ready to be attached, how it is confined, and the engine's names of its images."""

    pair: "Pair"
    posture: Posture
    executor_image: str
    supervisor_image: str


class Pair:
    """Only its owner changes it. After `boot` there is always one pending read of the supervisor's stdout."""

    def __init__(self, plan: PairPlan, pair_id: str, engine: Engine, events: PairEvents, created_s: float) -> None:
        self.plan = plan
        self.pair_id = pair_id
        self.run_id = plan.labels.run_id
        self.state: PairState = "booting"
        self.created_s = created_s
        self._engine = engine
        self._events = events
        self._stdio: AttachedStdio | None = None
        self._next_read: asyncio.Task[bytes] | None = None
        self._images: dict[Role, str] = {}

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def hits(self) -> tuple[LimitName, ...]:
        """The limits that the engine has enforced so far."""
        return self._events.hits

    @property
    def stdio(self) -> AttachedStdio:
        """The supervisor's streams. Raises StartFailed before they are attached."""
        if self._stdio is None:
            raise StartFailed
        return self._stdio

    async def boot(self) -> BootedPair:
        """Create and start both halves concurrently. Raises EngineDown, EngineRefused, StartFailed; then end the
        pair."""
        try:
            async with asyncio.timeout(BOOT_TIMEOUT_S), asyncio.TaskGroup() as group:
                dying = group.create_task(self._fail_when_executor_dies())
                group.create_task(self._start_executor())
                posture = await self._start_supervisor(group)
                dying.cancel()
        except TimeoutError as error:
            raise StartFailed("it was not ready in time") from error
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        self._next_read = asyncio.create_task(self.stdio.read())
        return BootedPair(self, posture, self._images["executor"], self._images["supervisor"])

    @property
    def is_unusable(self) -> bool:
        """Whether the supervisor has sent anything since its boot, or has ended: then no run can use it any more."""
        return self._next_read is None or self._next_read.done()

    def call_when_unusable(self, callback: Callable[[], None]) -> None:
        """Call `callback` when `is_unusable` becomes true."""
        if self._next_read is not None:
            self._next_read.add_done_callback(lambda _: callback())

    def assign(self, run_id: str) -> None:
        """Assign a warm pair to its one run."""
        self.run_id = run_id
        self.state = "started"

    async def read(self) -> bytes:
        """The next bytes of the supervisor's stdout; empty at its end."""
        if (first := self._next_read) is not None:
            self._next_read = None
            return await first
        return await self.stdio.read()

    @property
    def errors(self) -> str:
        """The end of the supervisor's stderr."""
        return self._stdio.errors if self._stdio else ""

    async def wait_for_executor_end(self) -> None:
        await self._events.executor_died.wait()

    async def end(self, *, force: bool) -> bool:
        """Remove everything of the pair. Without `force`, its stdin is closed first, and it has 2 s to end by itself.

        False if the engine does not answer: then the reaper removes the rest.
        """
        self.state = "ending"
        if self._stdio is not None and not force:
            self._stdio.close_input()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LIFELINE_S):
                    await self._events.wait_until_gone()
        problems: list[str] = []
        try:
            async with asyncio.timeout(REMOVAL_S):
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._remove("executor", problems))
                    group.create_task(self._remove("supervisor", problems))
                if not problems:
                    await self._remove_volume()
        except (EngineDown, EngineRefused) as error:
            problems.append(f"volume: {error}")
        except TimeoutError:
            problems.append(f"it took more than {REMOVAL_S:g} s")
        finally:
            self._close()
        if problems:
            _log.warning("Could not remove a pair; the reaper will remove it", pair=self.name, problems=problems)
        return not problems

    async def _start_executor(self) -> None:
        name = name_container(self.name, "executor")
        plan = self.plan
        body = build_executor(plan.profile, plan.labels, plan.seccomp, plan.executor_uid, plan.preload)
        await self._engine.create(name, body)
        await self._engine.start(name)
        await self._note_image("executor")

    async def _start_supervisor(self, group: asyncio.TaskGroup) -> Posture:
        name = name_container(self.name, "supervisor")
        plan = self.plan
        body = build_supervisor(plan.profile, plan.labels, plan.supervisor_seccomp, plan.executor_uid)
        await self._engine.create(name, body)
        # Attach before the start: there is no log that would keep its first output.
        self._stdio = await self._engine.attach(name)
        await self._engine.start(name)
        group.create_task(self._note_image("supervisor"))
        return await read_ready(self._stdio)

    async def _note_image(self, role: Role) -> None:
        try:
            self._images[role] = await self._engine.load_image(name_container(self.name, role))
        except NotThere as error:
            raise StartFailed(f"the {role} ended immediately") from error

    async def _fail_when_executor_dies(self) -> None:
        await self._events.executor_died.wait()
        # Its supervisor may report a more precise reason, so wait for that first.
        await asyncio.sleep(LAST_OUTPUT_S)
        raise StartFailed(f"the executor ended with code {self._events.executor_exit}")

    async def _remove(self, role: Role, problems: list[str]) -> None:
        """Remove a container. Add to `problems` if the engine fails, so that the other container is removed too."""
        gone = self._events.executor_gone if role == "executor" else self._events.supervisor_gone
        if gone.is_set():
            return
        try:
            await self._engine.kill_and_remove(name_container(self.name, role))
        except InUse:
            await gone.wait()
        except NotThere:
            return
        except (EngineDown, EngineRefused) as error:
            problems.append(f"{role}: {error}")
            return
        # Earlier events, such as memory that ran out, belong in the report of the pair, so wait for them.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVENT_LAG_S):
                await gone.wait()

    async def _remove_volume(self) -> None:
        """Remove the volume. The engine rejects this until both containers are gone, so success implies that."""
        for _ in range(_VOLUME_TRIES):
            try:
                await self._engine.remove_volume(name_volume(self.name))
            except NotThere:
                return
            except InUse:
                await asyncio.sleep(_VOLUME_PAUSE_S)
            else:
                return
        raise InUse(f"the volume of {self.name}")

    def _close(self) -> None:
        if self._next_read is not None:
            self._next_read.cancel()
        if self._stdio is not None:
            self._stdio.close()


async def read_ready(stdio: AttachedStdio) -> Posture:
    """Wait for the supervisor's first frame, which must be `Ready`. Raises StartFailed with what it sent instead."""
    decoder = FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True)
    try:
        while data := await stdio.read():
            if frames := decoder.feed(data):
                break
        else:
            raise StartFailed(stdio.errors or "the supervisor ended before it was ready")
        if len(frames) > 1 or decoder.mid_frame or not isinstance(frames[0], dict):
            raise StartFailed("the supervisor did not begin with a single Ready frame")
        match parse_message(frames[0], Ready, Finished):
            case Ready(posture=posture):
                return posture
            case Finished(detail=detail):
                raise StartFailed(detail)
    except (FrameError, BadMessage) as error:
        raise StartFailed(f"invalid frame from the supervisor: {error}") from error
