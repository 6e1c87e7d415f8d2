"""The ReAct loop: the timeline determines the next step, a round calls the model, a tool runs, and so on to the answer.

Every step is committed before the next begins, so that any worker can resume from the blocks alone: C1 is the commit
of a decision, before it is acted on, C2 that of a call's result, and C3 that of the answer and the end of the turn.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from chat_proc.agent.approving import ApprovalGate
from chat_proc.agent.boundaries import TurnBoundaries
from chat_proc.agent.closing import ClosingCall
from chat_proc.agent.compaction import TurnCompaction
from chat_proc.agent.finishing import TurnFinisher
from chat_proc.agent.generation import Generator
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.limits import round_limit
from chat_proc.agent.prompting import TurnPrompts
from chat_proc.agent.round import RoundRunner
from chat_proc.agent.round_calls import RoundCalls
from chat_proc.agent.signal_folding import through_last_end
from chat_proc.agent.tool_calls import Wait
from chat_proc.turn.leased import CommitContent, LeasedTurn, TurnEnd
from everturn.core.errors import Conflict, problem
from everturn.models.port import ContextLimitExceeded
from everturn.timeline.blocks import Block
from everturn.timeline.progress import BeginTurn, ExecuteCalls, FinishTurn, GenerateRound, TurnEnded
from everturn.timeline.turns import Outcome


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The turn stopped before a model call, before calls that another worker left, or in a call that was postponed; the
    next worker resumes it, if `is_postponed` not at once."""

    is_postponed: bool = False


@dataclass(frozen=True, slots=True)
class Parked:
    """The turn can only wait now: for a person, or for a call that goes on without it."""


LoopResult = TurnEnd | HandedOver | Parked
"""The ways in which the loop stops; only a TurnEnd ends the turn."""


@dataclass(frozen=True, slots=True)
class HeldEnd:
    """The end of a turn that is not committed. `ready`, a summary that is part of its content, is kept even if the turn
    continues."""

    end: TurnEnd
    ready: CommitContent


_End = TypeVar("_End")
_Close = Callable[[LeasedTurn, TurnEnd, CommitContent], Awaitable[_End | None]]


class LoopHooks(Protocol):
    """Observes how the agent works; what it does changes nothing. Implemented by TurnHooks."""

    async def before_round(self, number: int) -> None: ...
    async def after_tools(self, blocks: Sequence[Block]) -> None:
        """The new blocks after the calls of a reply."""
        ...


class AgentLoop:
    """Runs turns of one kit, sequentially or concurrently; keeps no state of them."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies) -> None:
        self._kit = kit
        self._parts = parts
        self._limits = kit.limits
        self._boundaries = TurnBoundaries(kit, parts)
        generator, gate = Generator(kit, parts), ApprovalGate(kit, parts)
        self._rounds = RoundRunner(kit, parts, generator, gate)
        self._calls = RoundCalls(kit, parts, gate)
        self._closing = ClosingCall(generator)
        self._finisher = TurnFinisher(kit, parts)

    async def run(self, turn: LeasedTurn, *, takeovers: int = 0) -> LoopResult:
        """Run from the turn's current state to its end; `takeovers` workers have died since its last commit."""
        return await self._open(turn, self._boundaries.try_close, takeovers)

    async def run_segment(
        self, turn: LeasedTurn, *, takeovers: int = 0, hooks: LoopHooks | None = None
    ) -> HeldEnd | LoopResult:
        """The same, but the end is left to the caller, unless the person ends the turn. `hooks` observe it."""

        async def hold(turn: LeasedTurn, end: TurnEnd, ready: CommitContent) -> HeldEnd | TurnEnd | None:
            return await self._boundaries.try_close(turn, end, ready) if end.content.signals else HeldEnd(end, ready)

        return await self._open(turn, hold, takeovers, hooks)

    async def _open(
        self, turn: LeasedTurn, close: _Close[_End], takeovers: int, hooks: LoopHooks | None = None
    ) -> _End | HandedOver | Parked:
        media = self._parts.attachments.open_media(turn.lease.principal.tenant, turn.activity.note_progress)
        prompts = TurnPrompts(self._kit, turn, media)
        compaction = TurnCompaction(self._kit, self._parts, turn, prompts)
        try:
            return await self._run(turn, prompts, compaction, close, takeovers=takeovers, hooks=hooks)
        finally:
            await compaction.abandon()

    async def _run(
        self,
        turn: LeasedTurn,
        prompts: TurnPrompts,
        compaction: TurnCompaction,
        close: _Close[_End],
        *,
        takeovers: int,
        hooks: LoopHooks | None,
    ) -> _End | HandedOver | Parked:
        async def try_end(end: TurnEnd) -> _End | None:
            ready = await compaction.finish()
            return await close(turn, replace(end, content=ready.plus(end.content)), ready)

        if takeovers and isinstance(turn.progress.next_step(), GenerateRound):
            await self._rounds.record_lost_calls(turn, prompts, takeovers)
        # A call without a result at this point may have been begun by another worker.
        resumed = True
        while True:
            match turn.progress.next_step():
                case ExecuteCalls() as step:
                    # Only before the first call: a worker that has made one call of a round makes the rest.
                    if resumed and await self._leaves(turn):
                        return HandedOver()
                    before = len(turn.turn_blocks)
                    wait = await self._calls.run(turn, step, resumed=resumed)
                    if wait is Wait.POSTPONED:
                        return HandedOver(is_postponed=True)
                    if wait is Wait.PARKED:
                        turn.emit_waiting()
                        return Parked()
                    if hooks is not None:
                        await hooks.after_tools(turn.turn_blocks[before:])
                case FinishTurn() as step:
                    if await self._leaves(turn) and step.attempt.is_draft:
                        return HandedOver()
                    limit = round_limit(self._limits, turn.progress)
                    lost = takeovers if resumed else 0
                    if not await self._boundaries.fold_before_draft(turn, step):
                        end = await self._finisher.run(turn, prompts.codec, step, limit, takeovers=lost)
                        if (closed := await try_end(end)) is not None:
                            return closed
                case GenerateRound(round=number):
                    end = await self._boundaries.fold(turn, number)
                    if end is None and turn.handover:
                        return HandedOver()
                    if end is None and hooks is not None:
                        await hooks.before_round(number)
                    if end is None:
                        end = await self._run_round(turn, prompts, compaction, number)
                    if end is not None and (closed := await try_end(end)) is not None:
                        return closed
                case BeginTurn() | TurnEnded():
                    raise Conflict("The loop runs only a turn that is open and has started.")
            resumed = False

    async def _leaves(self, turn: LeasedTurn) -> bool:
        """Whether the next worker goes on, because this one is draining; it still ends a turn that a person ends."""
        return turn.handover and not through_last_end(await turn.inbox.load_unseen())

    async def _run_round(
        self, turn: LeasedTurn, prompts: TurnPrompts, compaction: TurnCompaction, number: int
    ) -> TurnEnd | None:
        """Run one round; returns the turn's end if the turn ends with it."""
        context = self._boundaries.build_context(turn, number)
        cap = self._boundaries.find_cap(turn, number)
        await compaction.make_room(context, allow_model=cap is None)
        if cap is None:
            try:
                return await self._rounds.run(turn, prompts, compaction, context)
            except ContextLimitExceeded as failure:
                return TurnEnd(None, problem("context-limit", "The conversation is too long", 503, failure.detail))
        closed = await self._closing.run(turn, prompts, compaction, context, cap)
        if closed is None:
            return None
        # A turn limited by a steer was ended by the person, not by a cap.
        return replace(closed, outcome=Outcome.STOPPED) if context.finalize and closed.outcome else closed
