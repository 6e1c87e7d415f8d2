"""The ReAct loop: the timeline says what comes next, a round asks the model, a tool runs, and so on to the answer.

Every step is committed before the next begins, so that any worker can go on from the blocks alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from chat_proc.agent.closing import ClosingCall
from chat_proc.agent.drafting import RoundPlace, draft_missing_start
from chat_proc.agent.execution import ToolRunner
from chat_proc.agent.folding import Folded, fold_signals, settle_leftover
from chat_proc.agent.limits import TurnLimits, reached_cap, round_limit
from chat_proc.agent.open_turn import OpenTurn, TurnEnd, Writing
from chat_proc.agent.prompting import PromptBuilder, TurnPrompts
from chat_proc.agent.round import RoundRunner
from everturn.errors import Conflict
from everturn.model.blocks import BlockType
from everturn.model.ids import TurnId
from everturn.model.signals import Signal, SignalKind
from everturn.model.turns import Outcome
from everturn.ports.timelines import InboxMoved
from everturn.telemetry.failpoints import Failpoints
from everturn.timeline.next_step import (
    ExecuteCalls,
    GenerateRound,
    TurnEnded,
    failure_streak,
    next_step,
    sealed_round,
)
from everturn.timeline.next_step import (
    OpenTurn as OpeningMissing,
)

_log = structlog.get_logger(__name__)

MAX_CLOSE_TRIES = 20
"""Signals that may come one by one while the turn is ending before its end is left to the sweeper."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The turn stopped at a round boundary; another worker goes on."""


class AgentLoop:
    """Runs turns one after another or side by side; holds nothing of them."""

    def __init__(
        self,
        *,
        prompts: PromptBuilder,
        rounds: RoundRunner,
        closing: ClosingCall,
        tools: ToolRunner,
        limits: TurnLimits,
        next_turn_id: Callable[[], TurnId],
        failpoints: Failpoints,
    ) -> None:
        self._prompts = prompts
        self._rounds = rounds
        self._closing = closing
        self._tools = tools
        self._limits = limits
        self._next_turn_id = next_turn_id
        self._failpoints = failpoints

    async def run(self, turn: OpenTurn, *, resumed: bool) -> TurnEnd | HandedOver:
        """From wherever the turn stands to its end."""
        prompts = self._prompts.open(turn)
        if resumed and isinstance(next_step(turn.turn_blocks), GenerateRound):
            await self._rounds.book_lost_call(turn, prompts)
        while True:
            match next_step(turn.turn_blocks):
                case ExecuteCalls() as step:
                    await self._execute(turn, step, resumed=resumed)
                case GenerateRound(round=number):
                    if turn.handover:
                        return HandedOver()
                    end = await self._run_round(turn, prompts, number)
                    if end is not None and (closed := await self._try_close(turn, end)) is not None:
                        return closed
                case OpeningMissing() | TurnEnded():
                    raise Conflict("The loop runs only on a turn that is open and begun.")
            resumed = False

    async def close(self, turn: OpenTurn, end: TurnEnd) -> TurnEnd:
        """End the turn whatever is said to it meanwhile: that becomes the next turn."""
        for _ in range(MAX_CLOSE_TRIES):
            leftover = settle_leftover(await _load_news(turn, end), self._next_turn_id(), turn.file_views)
            final = TurnEnd(end.outcome, end.error, end.writing.plus(leftover.writing))
            try:
                await turn.close(final, promote=leftover.promote)
            except InboxMoved:
                continue
            return final
        raise Conflict(f"{MAX_CLOSE_TRIES} signals came while the turn was ending.")

    async def _run_round(self, turn: OpenTurn, prompts: TurnPrompts, number: int) -> TurnEnd | None:
        """One round; its end when the turn is to end with it."""
        folded = await self._fold(turn, number)
        if folded.cancel:
            return TurnEnd(Outcome.CANCELLED, writing=folded.writing)
        if folded.stop:
            return TurnEnd(Outcome.STOPPED, writing=folded.writing)
        if folded:
            await turn.commit(folded.writing)
        place = self._place(turn, number)
        if (cap := self._cap(turn, place)) is not None:
            return await self._closing.run(turn, prompts, place, cap)
        return await self._rounds.run(turn, prompts, place)

    def _cap(self, turn: OpenTurn, place: RoundPlace) -> str | None:
        if place.round > place.limit:
            return f"the limit of {place.limit} rounds"
        if failure_streak(turn.turn_blocks) > self._limits.max_repairs:
            return "too many replies that could not be used"
        return reached_cap(self._limits, turn.usage, turn.elapsed_s)

    async def _fold(self, turn: OpenTurn, number: int) -> Folded:
        signals = await turn.inbox.load_unseen()
        if not signals:
            return Folded(Writing())
        folded = fold_signals(signals, self._place(turn, number), turn.file_views)
        if folded.cancel or folded.stop:
            # The turn ends here: no round begins.
            return fold_signals(signals, self._place(turn, number - 1), turn.file_views)
        start = Writing(drafts=tuple(draft_missing_start(self._place(turn, number), turn.turn_blocks)))
        return replace(folded, writing=start.plus(folded.writing))

    async def _execute(self, turn: OpenTurn, step: ExecuteCalls, *, resumed: bool) -> None:
        for pending in step.calls:
            place = self._place(turn, step.round)
            writing = await self._tools.run(turn, pending, place, resumed=resumed)
            self._failpoints.hit("turn.before_c2")
            await turn.commit(writing)
            self._failpoints.hit("turn.after_c2")

    async def _try_close(self, turn: OpenTurn, end: TurnEnd) -> TurnEnd | None:
        """End the turn; None when something that was said just now opens one more round instead."""
        while True:
            signals = await _load_news(turn, end)
            cancels = tuple(signal for signal in signals if signal.kind is SignalKind.CANCEL)
            if cancels and end.error is None:
                return await self._close_cancelled(turn, end, cancels)
            if not self._goes_on(turn, end, signals):
                return await self.close(turn, end)
            if signals:
                await turn.commit(end.writing)
                return None
            try:
                self._failpoints.hit("turn.before_c3")
                await turn.close(end)
            except InboxMoved:
                continue
            return end

    def _goes_on(self, turn: OpenTurn, end: TurnEnd, signals: tuple[Signal, ...]) -> bool:
        """Whether a signal that comes now opens another round of this turn rather than the next turn."""
        if end.outcome is not Outcome.COMPLETED:
            return False
        folded = sum(1 for block in turn.turn_blocks if block.type is BlockType.USER_FOLLOWUP)
        return not signals or folded < self._limits.rounds

    async def _close_cancelled(self, turn: OpenTurn, end: TurnEnd, cancels: tuple[Signal, ...]) -> TurnEnd:
        folded = fold_signals(cancels, self._place(turn, sealed_round(turn.turn_blocks)), turn.file_views)
        return await self.close(turn, TurnEnd(Outcome.CANCELLED, writing=end.writing.plus(folded.writing)))

    def _place(self, turn: OpenTurn, number: int) -> RoundPlace:
        return RoundPlace(turn.turn_id, number, round_limit(self._limits, turn.turn_blocks), turn.now())


async def _load_news(turn: OpenTurn, end: TurnEnd) -> tuple[Signal, ...]:
    """Unseen signals that the end does not answer already."""
    answered = {change.signal_id for change in end.writing.signals}
    return tuple(signal for signal in await turn.inbox.load_unseen() if signal.id not in answered)
