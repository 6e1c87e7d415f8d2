"""Runs the calls of one round and commits each result (C2)."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import takewhile

from chat_proc.agent.approving import NOT_STARTED, ApprovalGate, MayNot, MayRun, MustWait
from chat_proc.agent.drafting import RoundContext
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.signal_folding import MAX_INBOX_TRIES
from chat_proc.agent.tool_calls import ToolRunner, Wait
from chat_proc.turn.leased import CommitContent, LeasedTurn
from everturn.core.cancellation import discard_errors
from everturn.core.errors import Conflict
from everturn.core.ids import CallId
from everturn.timeline.progress import ExecuteCalls, PendingCall
from everturn.turns.ports import InboxMoved

_NOT_REPEATED = (
    "The worker stopped during this call, and it is not repeated, because a new message from the user may change the "
    "work."
)
_ENDED = "The call was ended, or not started, because a new message from the user may change the work."
MAX_BESIDE = 8
"""How many calls of a round run at the same time."""


class RoundCalls:
    """Runs the calls of any round; keeps no state of them. Of the calls that can write files or change what the model
    sees, only one runs at a time among all lanes with the same lock `writing`."""

    def __init__(
        self, kit: TurnKit, parts: LoopDependencies, gate: ApprovalGate, *, writing: asyncio.Lock | None = None
    ) -> None:
        self._gate = gate
        self._tools = ToolRunner(kit, parts)
        self._stragglers = parts.stragglers
        self._failpoints = parts.failpoints
        self._writing = writing or asyncio.Lock()

    async def run(self, turn: LeasedTurn, step: ExecuteCalls, *, resumed: bool, waited: bool = False) -> Wait | None:
        """Run the calls in order, those that wait for a person last. Consecutive ones that neither write files nor
        change what the model sees run side by side. A steer or a cancel skips those that have not begun. With `resumed`
        some may have been begun by another worker; with `waited` the first one by this worker, if it can be detached.

        Returns what the turn does if the next one has to wait for a person, or has no result yet; None if all have one.
        """
        calls = sorted(step.calls, key=lambda call: self._gate.is_asked(turn, call))
        begun = self._find_begun(turn, calls) if resumed else self._find_detached(calls[:1] if waited else ())
        if resumed:
            # Another worker decided on these calls, perhaps by other rules. If it requested no approval for a call that
            # has begun, the tool needed none then, and it is not asked about now.
            unbegun = [call for call in calls if call.block.call_id not in begun]
            await self._gate.ask(turn, unbegun, _context(turn, step.round))
        stopped = False
        while group := self._next_group(turn, calls):
            stopped = stopped or await turn.inbox.has_control()
            if self._gate.is_asked(turn, group[0]):
                async with self._writing:
                    if (wait := await self._run_with_approval(turn, calls, step.round, begun=begun)) is not None:
                        return wait
            elif self._tools.runs_beside(group[0]):
                stopped = await self._run_beside(turn, group, step.round, begun=begun, stopped=stopped)
            else:
                stopped, wait = await self._run_alone(turn, group[0], step.round, begun=begun, stopped=stopped)
                if wait is Wait.PARKED:
                    # An answer that nobody has read would keep the turn from waiting.
                    await self._gate.settle(turn, calls, _context(turn, step.round))
                if wait is not None:
                    return wait
            calls = calls[len(group) :]
        return None

    def may_wait_for_run(self, step: ExecuteCalls) -> bool:
        """Whether one of these calls may have gone on without its turn."""
        return any(self._tools.can_detach(call) for call in step.calls)

    def _find_begun(self, turn: LeasedTurn, calls: Sequence[PendingCall]) -> frozenset[CallId]:
        """The calls that another worker may have begun: the first group and, since that worker may have had other tools
        and so other groups, every irreversible call. But those about which a person was asked begin one by one, and a
        call that may be detached runs alone on every worker: no other one begins before it has a result."""
        first = self._next_group(turn, calls)
        runs_alone = bool(first) and self._tools.has_detaching_tool(first[0])
        others = [
            call
            for call in (() if runs_alone else calls[len(first) :])
            if self._tools.may_be_irreversible(call) and not self._gate.is_asked(turn, call)
        ]
        return frozenset(call.block.call_id for call in (*first, *others) if call.block.call_id)

    def _find_detached(self, calls: Sequence[PendingCall]) -> frozenset[CallId]:
        """Those of these calls that may go on without the turn."""
        return frozenset(call.block.call_id for call in calls if call.block.call_id and self._tools.can_detach(call))

    def _next_group(self, turn: LeasedTurn, calls: Sequence[PendingCall]) -> Sequence[PendingCall]:
        """The first of these calls, with those after it that may run at the same time."""

        def is_alone(call: PendingCall) -> bool:
            return self._gate.is_asked(turn, call) or not self._tools.runs_beside(call)

        beside = list(takewhile(lambda call: not is_alone(call), calls))
        return beside or calls[:1]

    async def _run_alone(
        self, turn: LeasedTurn, pending: PendingCall, number: int, *, begun: Collection[CallId], stopped: bool
    ) -> tuple[bool, Wait | None]:
        """Run a call while no other one writes. Returns whether a signal has stopped the round's calls, and what the
        turn does if the call has no result yet."""
        async with self._writing:
            stopped = stopped or await turn.inbox.has_control()
            content = await self._run_or_skip(turn, pending, number, begun=begun, stopped=stopped)
            if isinstance(content, Wait):
                return stopped, content
            await self._commit(turn, content)
        return stopped, None

    async def _run_beside(
        self, turn: LeasedTurn, calls: Sequence[PendingCall], number: int, *, begun: Collection[CallId], stopped: bool
    ) -> bool:
        """Run calls side by side, and commit each result when its call ends. Returns whether a signal has stopped the
        round's calls."""
        slots = asyncio.Semaphore(MAX_BESIDE)

        async def run(n: int, pending: PendingCall) -> CommitContent:
            nonlocal stopped
            async with slots:
                stopped = stopped or (n >= MAX_BESIDE and await turn.inbox.has_control())
                content = await self._run_or_skip(turn, pending, number, begun=begun, stopped=stopped)
                if isinstance(content, Wait):
                    raise TypeError("a tool whose calls run side by side can't detach them")
                return content

        if len(calls) == 1:
            await self._commit(turn, await run(0, calls[0]))
            return stopped
        running = [asyncio.create_task(run(n, pending)) for n, pending in enumerate(calls)]
        try:
            while running:
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in running if task in ended]:
                    running.remove(task)
                    await self._commit(turn, task.result())
        finally:
            await self._stragglers.end(*running)
            discard_errors(*running)
        return stopped

    async def _run_or_skip(
        self, turn: LeasedTurn, pending: PendingCall, number: int, *, begun: Collection[CallId], stopped: bool
    ) -> CommitContent | Wait:
        resumed = pending.block.call_id in begun
        if stopped and (why := self._find_reason(pending, resumed=resumed)):
            return self._tools.skip(turn, pending, _context(turn, number), why)
        return await self._tools.run(turn, pending, _context(turn, number), resumed=resumed)

    def _find_reason(self, pending: PendingCall, *, resumed: bool) -> str:
        """Why a call is not made after a steer or a cancel. Empty for one that may have begun and is irreversible: it
        is reported as such, and not repeated."""
        if not resumed:
            return NOT_STARTED
        if self._tools.may_be_irreversible(pending):
            return ""
        return _ENDED if self._tools.can_detach(pending) else _NOT_REPEATED

    async def _run_with_approval(
        self, turn: LeasedTurn, calls: Sequence[PendingCall], number: int, *, begun: Collection[CallId]
    ) -> Wait | None:
        """Run the first of these calls, which needs approval, to its result; returns what the turn does while it is
        unanswered or has no result."""
        pending, fresh = calls[0], False
        for _ in range(MAX_INBOX_TRIES):
            context = _context(turn, number)
            # A call whose answer was settled just now has not begun on any worker.
            fresh = fresh or pending.block.call_id in await self._gate.settle(turn, calls, context)
            again = pending.block.call_id in begun and not fresh
            stopped, why = await turn.inbox.has_control(), self._find_reason(pending, resumed=again)
            verdict = self._gate.judge(turn, pending, context, stopped=stopped, why=why)
            match verdict:
                case MustWait():
                    return Wait.PARKED
                case MayRun():
                    self._failpoints.hit("turn.approved")
                    # Not retried: if this commit fails, the error leaves the loop, because another pass would make the
                    # call again.
                    approved = self._gate.is_approved(turn, pending)
                    content = await self._tools.run(turn, pending, context, resumed=again, approved=approved)
                    if isinstance(content, Wait):
                        return content
                    await self._commit(turn, content)
                    return None
                case MayNot(settling=settling, why=why):
                    content = settling.plus(self._tools.skip(turn, pending, context, why))
                    # An answer can arrive between the check and the commit that withdraws the question.
                    with suppress(InboxMoved):
                        await self._commit(turn, content)
                        return None
        raise Conflict(f"An approval changed {MAX_INBOX_TRIES} times while it was being read.")

    async def _commit(self, turn: LeasedTurn, content: CommitContent) -> None:
        self._failpoints.hit("turn.before_c2")
        await turn.commit(content)
        self._failpoints.hit("turn.after_c2")


def _context(turn: LeasedTurn, number: int) -> RoundContext:
    """Only a model sees how many rounds are left."""
    return RoundContext(turn.turn_id, number, number, turn.now())
