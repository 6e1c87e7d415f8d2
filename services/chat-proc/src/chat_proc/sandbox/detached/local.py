"""Detached runs in the sandbox of the worker that started them. They end with their worker, and are started again."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog
from pydantic import BaseModel, ValidationError

from chat_proc.sandbox.detached.port import CollectedRun, FindKnown, RunEnd, RunRow
from chat_proc.sandbox.port import RunArtifact, RunNotes, RunRequest, RunResult, Sandbox, SandboxUnavailable
from chat_proc.sandbox.receipts import is_unknown
from chat_proc.sandbox.results import may_start_later
from everturn.core.cancellation import end_tasks
from everturn.core.errors import EverturnError, NotFound, Unavailable
from everturn.core.ids import ConversationId
from everturn.core.loops import guarded
from everturn.execution.messages import MIB, GatewayCall, ToolReply
from everturn.execution.profiles import LOCAL_ENGINE, MAX_DETACHED_OUTPUT_BYTES
from everturn.files.model import object_key
from everturn.files.objects import Objects
from everturn.turns.detached import DetachedRun, WatchedRun

_log = structlog.get_logger(__name__)

MAX_HELD: Final = 16
"""Detached runs of one worker. Beyond that, a run stays with its turn, which keeps its slot."""
ALLOWANCE_S: Final = 300.0
"""For boot, inputs and outputs, as for a run that is not detached."""
STORING_S: Final = 900.0
"""For storing the result, while the store may be away. The sandbox ends a program at its own time limit."""
MAX_RESULT_BYTES: Final = MAX_DETACHED_OUTPUT_BYTES + 64 * MIB
"""The outputs of a run, and its texts: a supervisor reports them in a few frames of 8 MiB at most."""
SAVE_AGAIN_S: Final = 2.0
SAVE_TIMEOUT_S: Final = 30.0


_GONE: Final = RunEnd("lost", "The worker that ran it was lost.")
_NOT_STORED: Final = RunEnd("failed", "Its result could not be stored.")


class _Head(BaseModel):
    """A result without the contents of its files, their sizes in bytes, and the notes of the run's request."""

    result: RunResult
    sizes: tuple[int, ...]
    notes: RunNotes = RunNotes()


@dataclass(slots=True)
class _Run:
    """A run in this process. `finishing` stores its result when `running` has ended; `end` is known after that."""

    running: asyncio.Task[RunResult] | None
    has_row: bool = False
    finishing: asyncio.Task[None] | None = None
    end: RunEnd | None = None

    def find_end(self, *, overdue: bool) -> RunEnd | None:
        is_storing = self.end is None and self.running is not None and self.running.done()
        return _NOT_STORED if is_storing and overdue else self.end


class LocalRuns:
    """Implements DetachedEngine in this process. `after_s` is how long a run stays with its turn, by profile."""

    name = LOCAL_ENGINE
    allowance_s = ALLOWANCE_S + STORING_S

    def __init__(
        self,
        sandbox: Sandbox | SandboxUnavailable,
        objects: Objects,
        after_s: Mapping[str, float],
        *,
        max_held: int = MAX_HELD,
    ) -> None:
        self._sandbox = sandbox
        self._objects = objects
        self._after_s = after_s
        self._max_held = max_held
        self._runs: dict[str, _Run] = {}

    def poll_interval_s(self, age_s: float) -> float:
        del age_s
        return 0.0

    async def begin(
        self, request: RunRequest, stop: asyncio.Event, row: RunRow, *, once_within_s: float | None = None
    ) -> RunResult | None:
        del once_within_s
        if isinstance(self._sandbox, SandboxUnavailable):
            raise self._sandbox
        own_stop = asyncio.Event()
        running = asyncio.create_task(self._sandbox.run(request, _refuse, stop=own_stop), name=request.execution_id)
        stopping = asyncio.create_task(stop.wait())
        try:
            either = running, stopping
            await asyncio.wait(either, timeout=self._after_s[request.profile], return_when=asyncio.FIRST_COMPLETED)
            goes_on = not (running.done() or stop.is_set()) and len(self._runs) < self._max_held
            if goes_on and await self._try_detach(request, running, row):
                return None
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                own_stop.set()
            return await running
        except BaseException:
            await end_tasks(running)
            raise
        finally:
            stopping.cancel()

    async def _try_detach(self, request: RunRequest, running: asyncio.Task[RunResult], row: RunRow) -> bool:
        """Keep the run, before its row is saved: no poll of the rows finds it missing here. False if there can be no
        row now; then the run stays with its turn."""
        run_id = request.execution_id
        run = self._runs[run_id] = _Run(running)
        try:
            run.has_row = await row.save_start(allowance_s=self.allowance_s, task=run_id)
        except Unavailable as error:
            _log.warning("Could not detach a run", run_id=run_id, error=str(error))
        finally:
            if not run.has_row:
                del self._runs[run_id]
        if run.has_row:
            run.finishing = asyncio.create_task(self._finish(request, running, row.conversation_id))
        return run.has_row

    async def _finish(
        self, request: RunRequest, running: asyncio.Task[RunResult], conversation_id: ConversationId
    ) -> None:
        """Wait for the program and store its result. A failure of our own loses this run alone, and so does the loss of
        its sandbox, such as by a broker that is restarted, or one that was busy for too long."""
        end = RunEnd("lost", "Its sandbox failed.")
        with guarded("detached_run_end"):
            result = await running
            if is_unknown(result) or may_start_later(result):
                end = RunEnd("lost", result.error.message if result.error else "")
            else:
                data, digest = await asyncio.to_thread(_encode, result, request.notes)
                key = object_key(conversation_id, digest)
                while not await self._try_save(key, data):  # noqa: ASYNC110 - a store has no event of ours
                    await asyncio.sleep(SAVE_AGAIN_S)
                end = RunEnd("finished", key)
        if (run := self._runs.get(request.execution_id)) is not None:
            run.end, run.running = end, None

    async def _try_save(self, key: str, data: bytes) -> bool:
        try:
            async with asyncio.timeout(SAVE_TIMEOUT_S):
                await self._objects.save(key, data)
        except (EverturnError, TimeoutError) as error:
            _log.warning("Could not store the result of a run; trying again", error=str(error))
            return False
        return True

    async def check(self, runs: Sequence[WatchedRun]) -> Mapping[str, RunEnd]:
        """The ends of these runs. A run that is not kept here was lost with its worker."""
        ends: dict[str, RunEnd] = {}
        for run in runs:
            kept = self._runs.get(run.run_id)
            end = kept.find_end(overdue=run.overdue) if kept else _GONE
            if end is not None:
                ends[run.run_id] = end
        return ends

    def list_kept(self) -> Sequence[str]:
        return tuple(run_id for run_id, run in self._runs.items() if run.has_row)

    async def stop(self, run_id: str, task: str) -> None:
        del task
        if (run := self._runs.pop(run_id, None)) is not None:
            await end_tasks(*_list_tasks(run))

    async def collect(self, request: RunRequest, run: DetachedRun) -> CollectedRun | None:
        del request
        if run.ended_as != "finished":
            return None
        try:
            data = await self._objects.load(run.detail, max_bytes=MAX_RESULT_BYTES)
            return await asyncio.to_thread(_decode, data)
        except (NotFound, ValidationError) as error:
            _log.error("The result of a run can't be read", run_id=run.run_id, error=type(error).__name__)
            return None

    async def discard(self, run: WatchedRun) -> None:
        # It may still try to store its result.
        await self.stop(run.run_id, run.task)
        if run.ended_as == "finished":
            await self._objects.delete([run.detail])

    async def sweep(self, find_known: FindKnown) -> None:
        """Does nothing: each look finds runs without a row, and results without one are orphans of the store."""
        del find_known


def _list_tasks(run: _Run) -> list[asyncio.Task[Any]]:
    return [task for task in (run.running, run.finishing) if task is not None]


def _encode(result: RunResult, notes: RunNotes) -> tuple[bytes, str]:
    """A line of JSON, then the contents of the files; and the SHA-256 of all. JSON of 60 MB would stop the event loop
    for half a second, also from a thread."""
    bodies = [file.body for file in result.artifacts]
    bare = replace(result, artifacts=tuple(replace(file, body=b"") for file in result.artifacts))
    head = _Head(result=bare, sizes=tuple(map(len, bodies)), notes=notes).model_dump_json().encode()
    data = b"".join((head, b"\n", *bodies))
    return data, hashlib.sha256(data).hexdigest()


def _decode(data: bytes) -> CollectedRun:
    """Raises ValidationError."""
    end = data.index(b"\n")
    head = _Head.model_validate_json(data[:end])
    bodies = memoryview(data)[end + 1 :]
    files: list[RunArtifact] = []
    for file, size in zip(head.result.artifacts, head.sizes, strict=True):
        files.append(replace(file, body=bytes(bodies[:size])))
        bodies = bodies[size:]
    return CollectedRun(replace(head.result, artifacts=tuple(files)), head.notes)


async def _refuse(call: GatewayCall) -> ToolReply:
    """The gateway grants no tools to detached runs, so it forwards no calls."""
    return ToolReply(call.id, False, None, "denied", "Programs of this profile can't call tools.")
