"""One pair from creation to end, in any engine: its state, its boot, its line, and the order in which it ends."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from everturn.execution.broker_messages import PairState
from everturn.execution.framing import FrameDecoder, FrameError
from everturn.execution.messages import PIPE_FRAME_BYTES, Finished, LimitName, Posture, Ready
from everturn.execution.records import BadMessage, parse_message
from exec_supervisor.broker.engine import PairEngine, PairImages, PairPlan, StartFailed, StartTimedOut, SupervisorLine
from exec_supervisor.broker.events import PairEvents

_log = structlog.stdlib.get_logger()

LAST_OUTPUT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class BootedPair:
    """A pair that is ready to be attached, how it is confined, and its images."""

    pair: "Pair"
    posture: Posture
    images: PairImages


class Pair:
    """Only its owner changes it. After `boot` there is always one pending read of the supervisor's stdout."""

    def __init__(self, plan: PairPlan, pair_id: str, engine: PairEngine, events: PairEvents, created_s: float) -> None:
        self.plan = plan
        self.pair_id = pair_id
        self.run_id = plan.run_id
        self.state: PairState = "booting"
        self.created_s = created_s
        self._engine = engine
        self._events = events
        self._line: SupervisorLine | None = None
        self._next_read: asyncio.Task[bytes] | None = None

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def hits(self) -> tuple[LimitName, ...]:
        """The limits that the engine has enforced so far."""
        return self._events.hits

    @property
    def line(self) -> SupervisorLine:
        """The supervisor's streams. Raises StartFailed before it is started."""
        if self._line is None:
            raise StartFailed
        return self._line

    async def boot(self) -> BootedPair:
        """Start the pair and wait until it is ready. Raises EngineDown, EngineRefused, StartFailed; then end it."""
        try:
            async with asyncio.timeout(self._engine.times.boot_s), asyncio.TaskGroup() as group:
                ending = group.create_task(self._fail_when_executor_ends())
                self._line = await self._engine.start(self.plan)
                images = group.create_task(self._engine.load_images(self.name))
                posture = await read_ready(self._line)
                ending.cancel()
        except TimeoutError as error:
            raise StartTimedOut from error
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        self._next_read = asyncio.create_task(self.line.read())
        return BootedPair(self, posture, images.result())

    @property
    def is_unusable(self) -> bool:
        """Whether the supervisor has sent anything since its boot, or has ended, so that no run can use it any more."""
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
        return await self.line.read()

    @property
    def errors(self) -> str:
        """The end of the supervisor's stderr."""
        return self._line.errors if self._line else ""

    async def wait_for_executor_end(self) -> None:
        await self._events.executor_ended.wait()

    async def end(self, *, force: bool) -> bool:
        """Remove everything of the pair. Without `force`, its stdin is closed, and it has `end_s` to end by itself.

        False if something could not be removed; the reaper then removes it.
        """
        self.state = "ending"
        if self._line is not None and not force:
            self._line.close_input()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._engine.times.end_s):
                    await self._events.pair_ended.wait()
        try:
            async with asyncio.timeout(self._engine.times.removal_s):
                problems = await self._engine.remove(self.name)
        except TimeoutError:
            problems = [f"it took more than {self._engine.times.removal_s:g} s"]
        finally:
            self._close()
        if problems:
            _log.warning("Could not remove a pair; the reaper will remove it", pair=self.name, problems=problems)
        return not problems

    async def _fail_when_executor_ends(self) -> None:
        await self._events.executor_ended.wait()
        # Its supervisor may report a more precise reason, so wait for that first.
        await asyncio.sleep(LAST_OUTPUT_S)
        raise StartFailed(f"the executor ended with code {self._events.executor_exit}")

    def _close(self) -> None:
        if self._next_read is not None:
            self._next_read.cancel()
        if self._line is not None:
            self._line.close()


async def read_ready(line: SupervisorLine) -> Posture:
    """Wait for the supervisor's first frame, which must be `Ready`. Raises StartFailed with what it sent instead."""
    decoder = FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True)
    try:
        while data := await line.read():
            if frames := decoder.feed(data):
                break
        else:
            raise StartFailed(line.errors or "the supervisor ended before it was ready")
        if len(frames) > 1 or decoder.mid_frame or not isinstance(frames[0], dict):
            raise StartFailed("the supervisor did not begin with a single Ready frame")
        match parse_message(frames[0], Ready, Finished):
            case Ready(posture=posture):
                return posture
            case Finished(detail=detail):
                raise StartFailed(detail)
    except (FrameError, BadMessage) as error:
        raise StartFailed(f"invalid frame from the supervisor: {error}") from error
