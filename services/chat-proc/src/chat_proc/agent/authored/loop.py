"""Turns that the workflow of a bundle's author runs. Its code is in a process of its own and asks for what it needs;
the answers that must not be repeated are blocks.

A worker that takes over executes the workflow again from its beginning and answers from the blocks what it has asked
for before (`everturn.timeline.authored`). The agent's answer to a task is held until it is known whether the workflow
goes on: if it returns, that is the end of the turn, as in a turn without a workflow; if it asks for more, the answer is
committed as one of several. Whatever the code does, the turn ends once.
"""

import asyncio
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Final

import structlog

from chat_proc.agent.authored.context import READS, ContextRequests, build_call_context, build_payload
from chat_proc.agent.authored.durable import DurableRequests
from chat_proc.agent.authored.ending import TurnStopped, WorkflowEnding
from chat_proc.agent.authored.hooks import TurnHooks
from chat_proc.agent.authored.models import WorkflowModels
from chat_proc.agent.authored.port import Authored, KnowledgeFunction
from chat_proc.agent.authored.progress import WorkflowProgress
from chat_proc.agent.authored.requests import Asked, Refused
from chat_proc.agent.boundaries import TurnBoundaries
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.loop import AgentLoop, HandedOver, LoopResult
from chat_proc.bundles.host.host_process import HostLost, HostUnavailable, RunRaised, SendDelta
from chat_proc.turn.leased import LeasedTurn
from everturn.core.cancellation import Stopped, discard_errors, run_until
from everturn.core.errors import Invalid
from everturn.timeline.progress import ExecuteCalls
from everturn_sdk.protocol import MAX_ASKS, Question

_log = structlog.get_logger(__name__)

MAX_LOST: Final = 3
"""How often the process of a workflow can be lost in one turn, before the turn ends."""


class AuthoredLoop:
    """Runs turns of one kit; keeps no state of them."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies, authored: Authored) -> None:
        self.kit = kit
        self.parts = parts
        self.authored = authored
        self.boundaries = TurnBoundaries(kit, parts)
        self.models = WorkflowModels(kit, parts, authored.markers)
        self.find_loop = cache(self._build_loop)

    def _build_loop(self, serves: frozenset[KnowledgeFunction]) -> AgentLoop:
        """The loop of an agent for whom these functions of the workflow serve."""
        tools = [tool for name, tool in self.authored.knowledge.items() if name in serves]
        return AgentLoop(self.kit.plus(tools), self.parts)

    async def run(self, turn: LeasedTurn, *, takeovers: int = 0) -> LoopResult:
        """As `AgentLoop.run`."""
        return await _AuthoredTurn(self, turn, takeovers).run()


class _Execution:
    """One execution of a workflow, from its worker's side. What reads only is answered at once, the rest in order."""

    def __init__(self, requests: ContextRequests) -> None:
        self._requests = requests
        self._waiting: asyncio.Queue[Asked | None] = asyncio.Queue(MAX_ASKS + 1)

    async def ask(self, what: Question, arguments: Mapping[str, Any], send: SendDelta, content: bytes) -> object:
        if what in READS:
            return await self._requests.answer(what, arguments)
        if self._waiting.qsize() >= MAX_ASKS:
            raise Invalid(f"A workflow can have at most {MAX_ASKS} open requests.")
        asked = Asked(what, arguments, asyncio.get_running_loop().create_future(), send, content)
        self._waiting.put_nowait(asked)
        return await asked.answered

    async def next(self) -> Asked | None:
        """The next request; None at the end of the execution."""
        return await self._waiting.get()

    def end(self, _task: asyncio.Task[str | None]) -> None:
        self._waiting.put_nowait(None)


class _Stop(Enum):
    """Why the wait for a workflow ended, apart from what it does itself."""

    BY_PERSON = "by_person"
    TIME = "time"


class _AuthoredTurn:
    """One turn, as long as this worker runs it."""

    def __init__(self, shared: AuthoredLoop, turn: LeasedTurn, takeovers: int) -> None:
        boundaries, failpoints = shared.boundaries, shared.parts.failpoints
        self._shared = shared
        self._workflow = shared.authored.workflow
        self._loop = shared.find_loop(frozenset[KnowledgeFunction]())
        self._turn = turn
        self._names = {"bundle_id": self._workflow.bundle_id, "turn_id": turn.turn_id}
        self._hooks = TurnHooks(self._workflow, turn)
        self._progress = WorkflowProgress(turn, boundaries, failpoints, takeovers)
        self._ending = WorkflowEnding(turn, self._progress, boundaries, self._loop, failpoints, self._names)

    async def run(self) -> LoopResult:
        if self._progress.read_record().end is not None:
            return await self._loop.run(self._turn, takeovers=self._progress.takeovers)
        has_calls = isinstance(self._turn.progress.next_step(), ExecuteCalls)
        if not has_calls and (ended := await self._ending.try_end_by_person()) is not None:
            return ended
        lost = 0
        while True:
            if self._turn.handover:
                return HandedOver()
            try:
                return await self._execute()
            except TurnStopped as stopped:
                return stopped.result
            except HostLost as error:
                lost += 1
                _log.warning("Lost the process of a workflow", **self._names, lost=lost, error=str(error))
                if lost >= MAX_LOST:
                    return await self._ending.fail("crashed", f"Its process ended {lost} times. {error.detail}")

    async def _execute(self) -> LoopResult:
        """Execute the workflow from its beginning, until the turn stops. Raises HostLost, and TurnStopped."""
        shared, turn = self._shared, self._turn
        execution = _Execution(ContextRequests(shared.kit, turn, shared.authored.files))
        run = self._workflow.run_workflow(build_payload(turn), build_call_context(turn), execution)
        task = asyncio.create_task(run, name="workflow")
        task.add_done_callback(execution.end)
        try:
            return await self._serve(execution, task)
        finally:
            await shared.parts.stragglers.end(task)
            discard_errors(task)

    async def _serve(self, execution: _Execution, task: asyncio.Task[str | None]) -> LoopResult:
        shared = self._shared
        durable = DurableRequests(
            shared.kit,
            shared.parts,
            shared.authored,
            shared.boundaries,
            shared.find_loop,
            self._turn,
            self._hooks,
            self._progress,
            self._ending,
            shared.models,
        )
        while True:
            match await self._wait(execution):
                case _Stop.BY_PERSON:
                    if (ended := await self._ending.try_end_by_person()) is not None:
                        return ended
                case _Stop.TIME:
                    return await self._ending.fail("timeout", "It did not end within the time limit of the turn.")
                case None:
                    return await self._end(task)
                case asked if asked.answered.done() and asked.what != "step_end":
                    """The process was lost after it had asked. A step that has ended is recorded nevertheless."""
                case asked:
                    try:
                        asked.answer(await durable.fulfil(asked))
                    except Refused as refused:
                        asked.refuse(str(refused))

    async def _end(self, task: asyncio.Task[str | None]) -> LoopResult:
        """End the turn after the workflow has. Raises HostLost."""
        try:
            text = task.result()
        except (RunRaised, Invalid) as error:
            return await self._ending.fail("raised", error.detail)
        except HostUnavailable as error:
            return await self._ending.fail("crashed", error.detail)
        return await self._ending.finish(text)

    async def _wait(self, execution: _Execution) -> Asked | _Stop | None:
        """What the workflow does next, None if it has ended."""
        kit, authored, stragglers = self._shared.kit, self._shared.authored, self._shared.parts.stragglers
        return_by_s = self._progress.answered_at_s + authored.return_grace_s
        left_s = max(
            kit.limits.wall_time_s - self._turn.spent.leased_s, return_by_s - asyncio.get_running_loop().time(), 0.0
        )
        limit = asyncio.timeout(left_s)
        try:
            async with limit:
                with self._turn.activity.open_call("the workflow"):
                    person = self._ending.wait_for_person()
                    ran = await run_until(person, execution.next(), stragglers=stragglers, name="next request")
        except TimeoutError:
            if not limit.expired():
                raise
            return _Stop.TIME
        return _Stop.BY_PERSON if isinstance(ran, Stopped) else ran.value
