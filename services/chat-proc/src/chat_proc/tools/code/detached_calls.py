"""The run of a call that may be detached: starts it, finds it again, and collects its result."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import structlog

from chat_proc.catalog.tool import CallDetached, CallPostponed, ToolCall
from chat_proc.sandbox.detached.port import CollectedRun, DetachedEngine
from chat_proc.sandbox.port import RunError, RunNotes, RunRequest, RunResult
from chat_proc.sandbox.receipts import is_unknown
from chat_proc.sandbox.results import build_broken, may_start_later
from chat_proc.tools.code.inputs import describe_failure
from everturn.core.errors import Unavailable
from everturn.core.ids import ConversationId
from everturn.core.retry import RetryPolicy
from everturn.execution.messages import RunLimits
from everturn.execution.profiles import ExecutionProfile
from everturn.files.objects import AlteredObject
from everturn.turns.detached import DetachedRun, DetachedRuns, RunStart
from everturn.turns.model import Lease

_log = structlog.get_logger(__name__)

MAX_STARTS: Final = 3
"""Starts of one call's run. Runs are lost with a worker or a machine, and a program can be the reason."""
COLLECT_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""The turn keeps its worker while it tries to read a result that is stored. Then it goes back into the queue."""
ANSWER_S: Final = 100.0
"""For all tries of a question, or of those before a start that is repeated and of that start itself: less than a call
has beyond its profile's time limit. Tries to read a result have the profile's time in addition, because a large one can
take minutes."""
WAIT_FOR_RESULT_S: Final = 900.0
"""Beyond the time that its starts may take: a result that can't be read or stored until then fails its call."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CallRun:
    """A result, the id of its run, and the notes of that start. `age_s` counts from the call's first start; None if the
    run was not detached. With `may_wait` the result is stored, and a call that raises CallPostponed gets it again."""

    result: RunResult
    run_id: str
    notes: RunNotes
    age_s: float | None = None
    may_wait: bool = False


class DetachedCalls:
    """Keeps no state of calls: their rows record what was started."""

    def __init__(
        self,
        runs: DetachedRuns,
        engines: Mapping[str, DetachedEngine],
        *,
        retries: RetryPolicy,
        collecting: RetryPolicy | None = None,
    ) -> None:
        self._runs = runs
        self._engines = engines
        self._retries = retries
        self._collecting = collecting or RetryPolicy(COLLECT_PAUSES_S)

    async def run(
        self,
        call: ToolCall,
        request: RunRequest,
        profile: ExecutionProfile,
        prepare: Callable[[], Awaitable[RunRequest]],
        prepare_again: Callable[[], Awaitable[RunRequest]],
    ) -> CallRun:
        """Start the run of a call, or return the result of the one that was started. `request` has no inputs and no
        notes: the first start gets them from `prepare`, and each later one from `prepare_again`.

        Raises CallDetached while it runs, CallPostponed during an outage, StaleFence, and Unavailable. A run without a
        result is a failed one.
        """
        lease, limits, engine = call.context.live.lease, profile.limits, self._engines[profile.engine]
        ids = call.context.turn_id, call.call_id
        until_s = asyncio.get_running_loop().time() + ANSWER_S
        run = await self.retry(lambda: self._runs.load(lease.principal, *ids), until_s)
        if run is None:
            return await self._start(call, await prepare(), engine, 1)
        if run.task and run.ended_as is None:
            raise CallDetached
        allowance_s = self._engines[run.engine].allowance_s if run.engine in self._engines else 0.0
        may_wait = run.age_s < run.starts * (request.timeout_s + allowance_s) + WAIT_FOR_RESULT_S
        # One that was overdue may have ended after all, while nobody could ask.
        if run.ended_as in ("finished", "overdue"):
            collected = await self._collect(request, profile, run, may_wait=may_wait)
            if collected is not None:
                return CallRun(collected.result, run.run_id, collected.notes, run.age_s, may_wait)
        if run.ended_as in ("overdue", "failed"):
            code = "timeout" if run.ended_as == "overdue" else "sandbox_failed"
            why = run.detail or "It exceeded its time limit."
            return CallRun(_fail(request, limits, code, why), run.run_id, request.notes, run.age_s)
        if run.ended_as and run.starts >= MAX_STARTS:
            detail = run.detail if run.ended_as == "lost" else "Its result is gone."
            why = f"It was started {run.starts} times and was lost each time. {detail}".strip()
            return CallRun(_fail(request, limits, "sandbox_failed", why), run.run_id, request.notes, run.age_s)
        _log.warning(
            "Starting a run again", run_id=run.run_id, starts=run.starts, ended_as=run.ended_as, why=run.detail
        )
        # One that has not ended was cut off between its row and the engine's answer: the same start is repeated.
        starts = run.starts + 1 if run.ended_as else run.starts
        if not may_wait:
            # A file that can never be read again is left out, as at a first start.
            return await self._start(call, await prepare(), engine, starts, run.age_s)
        ready = await self.retry(prepare_again, until_s)
        return await self._restart(call, ready, engine, starts, run.age_s, until_s)

    async def retry(self, make: Callable[[], Awaitable[_T]], until_s: float | None = None) -> _T:
        """What `make` returns. Raises CallPostponed if it is still Unavailable after the last retry, or has not
        returned after ANSWER_S, or at `until_s` of the event loop: a run that has perhaps ended must not count as
        failed, so the turn goes back into the queue."""
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + ANSWER_S if until_s is None else until_s):
                return await self._retries.call(make)
        except (Unavailable, TimeoutError) as error:
            raise CallPostponed from error

    async def _restart(
        self, call: ToolCall, request: RunRequest, engine: DetachedEngine, starts: int, age_s: float, until_s: float
    ) -> CallRun:
        """Like `_start`, but raises CallPostponed if the engine starts no runs now, such as without its broker: the
        turn waits in the queue, without a lease. A run whose sandbox is lost before it is detached counts as one start
        more."""
        left_s = max(0.0, until_s - asyncio.get_running_loop().time())
        try:
            ran = await self._start(call, request, engine, starts, age_s, once_within_s=left_s)
        except Unavailable as error:
            raise CallPostponed from error
        if may_start_later(ran.result):
            raise CallPostponed from Unavailable(ran.result.report_text)
        if is_unknown(ran.result) and starts < MAX_STARTS:
            return await self._restart(call, request, engine, starts + 1, age_s, until_s)
        return ran

    async def _start(
        self,
        call: ToolCall,
        request: RunRequest,
        engine: DetachedEngine,
        starts: int,
        age_s: float | None = None,
        *,
        once_within_s: float | None = None,
    ) -> CallRun:
        named = replace(request, execution_id=f"{request.execution_id}_{starts}")
        row = _Row(self._runs, self._retries, call, named, engine.name, starts)
        result = await engine.begin(named, call.stop, row, once_within_s=once_within_s)
        if result is None:
            raise CallDetached
        return CallRun(result, named.execution_id, named.notes, age_s)

    async def _collect(
        self, request: RunRequest, profile: ExecutionProfile, run: DetachedRun, *, may_wait: bool
    ) -> CollectedRun | None:
        engine, limits = self._engines.get(run.engine), profile.limits
        if engine is None:
            why = f"This worker has no access to the engine {run.engine!r}."
            return CollectedRun(_fail(request, limits, "sandbox_failed", why), request.notes)
        named = replace(request, execution_id=run.run_id)
        try:
            async with asyncio.timeout(min(profile.timeout_s, WAIT_FOR_RESULT_S) + ANSWER_S):
                return await self._collecting.call(lambda: engine.collect(named, run))
        except (Unavailable, TimeoutError) as error:
            if may_wait and not isinstance(error, AlteredObject):
                raise CallPostponed from error
            _log.warning(
                "Could not read the result of a run", run_id=run.run_id, error=str(error) or "no answer in time"
            )
            why = f"Its result can't be read: {describe_failure(error)}."
            return CollectedRun(_fail(request, limits, "sandbox_failed", why), request.notes)


@dataclass(frozen=True, slots=True)
class _Row:
    """Implements RunRow."""

    runs: DetachedRuns
    retries: RetryPolicy
    call: ToolCall
    request: RunRequest
    engine: str
    starts: int

    @property
    def conversation_id(self) -> ConversationId:
        return self.call.context.conversation_id

    async def save_start(self, *, allowance_s: float, task: str = "") -> bool:
        start = RunStart(
            turn_id=self.call.context.turn_id,
            call_id=self.call.call_id,
            run_id=self.request.execution_id,
            starts=self.starts,
            engine=self.engine,
            time_limit_s=self.request.timeout_s + allowance_s,
            task=task,
        )
        return await self.retries.call(lambda: self.runs.save_start(self._lease, start))

    async def save_task(self, task: str) -> None:
        await self.retries.call(lambda: self.runs.save_task(self._lease, self.request.execution_id, task))

    @property
    def _lease(self) -> Lease:
        return self.call.context.live.lease


def _fail(request: RunRequest, limits: RunLimits, code: str, why: str) -> RunResult:
    return build_broken(request, limits, RunError(code, why, "sandbox"))
