"""The ReAct loop: the timeline determines the next step, a round calls the model, a tool runs, and so on to the answer.

Every step is committed before the next begins, so that any worker can resume from the blocks alone: C1 is the commit
of a decision, before it is acted on, C2 that of a call's result, and C3 that of the answer and the end of the turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from chat_proc.agent.approving import ApprovalGate
from chat_proc.agent.closing import ClosingCall
from chat_proc.agent.compaction import TurnCompaction
from chat_proc.agent.drafting import RoundContext, draft_missing_start
from chat_proc.agent.finishing import TurnFinisher
from chat_proc.agent.generation import Generator
from chat_proc.agent.kit import LoopDependencies, TurnKit, TurnLimits
from chat_proc.agent.prompting import TurnPrompts
from chat_proc.agent.round import RoundRunner
from chat_proc.agent.round_calls import RoundCalls
from chat_proc.agent.signal_folding import (
    MAX_INBOX_TRIES,
    draft_deferral,
    fold_signals,
    needs_response,
    repeats_deferred,
    settle_late_signals,
    shows_deferred_again,
    through_last_end,
    try_draft_withdrawn_stop,
)
from chat_proc.channels.decision_problems import TOO_LONG_CODES
from chat_proc.turn.leased import CommitContent, LeasedTurn, Spent, TurnEnd
from everturn.core.errors import Conflict, problem
from everturn.events.model import ConvStatus
from everturn.models.port import ContextLimitExceeded
from everturn.timeline.progress import (
    BeginTurn,
    ExecuteCalls,
    FinishTurn,
    GenerateRound,
    TurnEnded,
    TurnProgress,
)
from everturn.timeline.turns import CONTROL_KINDS, Outcome, Signal, SignalKind
from everturn.turns.ports import InboxMoved

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The turn stopped before a model call, or before calls that another worker left; the next worker resumes it."""


@dataclass(frozen=True, slots=True)
class Parked:
    """The turn can only wait for a person now."""


LoopResult = TurnEnd | HandedOver | Parked
"""The ways in which the loop stops; only a TurnEnd ends the turn."""


class AgentLoop:
    """Runs turns of one kit, sequentially or concurrently; keeps no state of them."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies) -> None:
        self._kit = kit
        self._parts = parts
        self._limits = kit.limits
        self._failpoints = parts.failpoints
        generator, gate = Generator(kit, parts), ApprovalGate(kit, parts)
        self._rounds = RoundRunner(kit, parts, generator, gate)
        self._calls = RoundCalls(kit, parts, gate)
        self._closing = ClosingCall(generator)
        self._finisher = TurnFinisher(kit, parts)

    async def run(self, turn: LeasedTurn, *, takeovers: int = 0) -> LoopResult:
        """Run from the turn's current state to its end; `takeovers` workers have died since its last commit."""
        media = self._parts.attachments.open_media(turn.lease.principal.tenant, turn.activity.note_progress)
        prompts = TurnPrompts(self._kit, turn, media)
        compaction = TurnCompaction(self._kit, self._parts, turn, prompts)
        try:
            return await self._run(turn, prompts, compaction, takeovers=takeovers)
        finally:
            await compaction.abandon()

    async def _run(
        self, turn: LeasedTurn, prompts: TurnPrompts, compaction: TurnCompaction, *, takeovers: int
    ) -> LoopResult:
        if takeovers and isinstance(turn.progress.next_step(), GenerateRound):
            await self._rounds.record_lost_calls(turn, prompts, takeovers)
        # A call without a result at this point may have been begun by another worker.
        resumed = True
        while True:
            match turn.progress.next_step():
                case ExecuteCalls() as step:
                    # Only before the first call: a worker that has made one call of a round makes the rest.
                    if resumed and turn.handover and not through_last_end(await turn.inbox.load_unseen()):
                        return HandedOver()
                    if not await self._calls.run(turn, step, resumed=resumed):
                        turn.emit(ConvStatus(state="waiting", turn_id=turn.turn_id))
                        return Parked()
                case FinishTurn() as step:
                    if turn.handover and step.attempt.is_draft:
                        return HandedOver()
                    limit = round_limit(self._limits, turn.progress)
                    lost = takeovers if resumed else 0
                    if not await self._replace_draft(turn, step):
                        end = await self._finisher.run(turn, prompts.codec, step, limit, takeovers=lost)
                        if (closed := await self._end(turn, compaction, end)) is not None:
                            return closed
                case GenerateRound(round=number):
                    end = await self._fold(turn, number)
                    if end is None and turn.handover:
                        return HandedOver()
                    if end is None:
                        end = await self._run_round(turn, prompts, compaction, number)
                    if end is not None and (closed := await self._end(turn, compaction, end)) is not None:
                        return closed
                case BeginTurn() | TurnEnded():
                    raise Conflict("The loop runs only a turn that is open and has started.")
            resumed = False

    async def close(self, turn: LeasedTurn, end: TurnEnd) -> TurnEnd:
        """End the turn; signals that arrive meanwhile become the next turn."""
        for _ in range(MAX_INBOX_TRIES):
            try:
                return await self._close_once(turn, end, await _load_new_signals(turn, end))
            except InboxMoved:
                continue
        raise Conflict(
            f"The inbox changed during each of {MAX_INBOX_TRIES} attempts to end the turn. Another worker tries again."
        )

    async def _end(self, turn: LeasedTurn, compaction: TurnCompaction, end: TurnEnd) -> TurnEnd | None:
        ready = await compaction.finish()
        return await self._try_close(turn, replace(end, content=ready.plus(end.content)), ready)

    async def _run_round(
        self, turn: LeasedTurn, prompts: TurnPrompts, compaction: TurnCompaction, number: int
    ) -> TurnEnd | None:
        """Run one round; returns the turn's end if the turn ends with it."""
        context = self._context(turn, number)
        cap = self._cap(turn, context)
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

    def _cap(self, turn: LeasedTurn, context: RoundContext) -> str | None:
        if context.round > context.limit:
            return "the limit of rounds after a steer" if context.finalize else f"the limit of {context.limit} rounds"
        if len(codes := turn.progress.failure_streak) > self._limits.max_repairs:
            if TOO_LONG_CODES.issuperset(codes):
                return f"the output limit of one reply {len(codes)} times in a row"
            return "the limit on replies that could not be used"
        return reached_cap(self._limits, turn.spent)

    async def _fold(self, turn: LeasedTurn, number: int, *, ends_steps: bool = False) -> TurnEnd | None:
        """Fold new signals into the round that begins; returns the turn's end if they end it. With `ends_steps`, only
        if a steer or a cancel is among them, and the steps that have begun end with it."""
        for _ in range(MAX_INBOX_TRIES):
            signals = await turn.inbox.load_unseen()
            if ends_steps and not any(signal.kind in CONTROL_KINDS for signal in signals):
                return None
            if ending := through_last_end(signals):
                # No round begins: the signals are recorded in the last one.
                return self._end_by_signals(turn, ending, number - 1)
            verdict = try_draft_withdrawn_stop(self._context(turn, number - 1), turn.progress)
            if not signals and verdict is None:
                return None
            context = self._context(turn, number)
            begin = draft_missing_start(context, turn.progress)
            start = CommitContent(drafts=tuple(begin if verdict is None else [verdict, *begin]))
            if ends_steps:
                start = self._build_step_ends(turn).plus(start)
            files = [artifact for signal in signals for artifact in signal.attachments]
            previews = await self._parts.attachments.load_previews(files)
            folded = fold_signals(signals, context, turn.show_files, previews)
            try:
                await turn.commit(start.plus(folded.content))
            except InboxMoved:
                # A signal was edited or withdrawn between the read and the commit.
                continue
            return None
        raise Conflict(f"Signals changed {MAX_INBOX_TRIES} times while they were folded.")

    def _build_step_ends(self, turn: LeasedTurn) -> CommitContent:
        """The ends of the steps that have begun and do not go on; a loop has none."""
        return CommitContent()

    def _end_by_signals(self, turn: LeasedTurn, ending: Sequence[Signal], number: int) -> TurnEnd:
        """The end of the turn by its last signals, which are recorded in this round."""
        folded = fold_signals(ending, self._context(turn, number), turn.show_files)
        return TurnEnd(Outcome.CANCELLED if folded.cancel else Outcome.STOPPED, content=folded.content)

    async def _replace_draft(self, turn: LeasedTurn, step: FinishTurn) -> bool:
        """Fold messages that arrived before a draft was shown, so that the next round covers them, too. False if there
        are none, or no round is left for them, or they end the turn: then the draft becomes the answer."""
        if not step.attempt.is_draft:
            return False
        signals = await turn.inbox.load_unseen()
        wanted = [signal for signal in signals if needs_response(signal)]
        last = turn.progress.sealed_round
        if not wanted or through_last_end(signals) or not has_room_for(self._limits, turn.progress, wanted, after=last):
            return False
        return await self._fold(turn, last + 1) is None

    async def _try_close(self, turn: LeasedTurn, end: TurnEnd, ready: CommitContent) -> TurnEnd | None:
        """End the turn; returns None if a new signal opens one more round instead.

        `ready`, a summary that is part of the end's content, is kept even if the turn continues.
        """
        for _ in range(MAX_INBOX_TRIES):
            new_signals = await _load_new_signals(turn, end)
            final, late_signals = end, new_signals
            if end.error is None and (cancelling := _through_last_cancel(new_signals)):
                context = self._context(turn, _last_round(turn, end))
                folded = fold_signals(cancelling, context, turn.show_files)
                final = TurnEnd(Outcome.CANCELLED, content=end.content.plus(folded.content))
                late_signals = new_signals[len(cancelling) :]
            elif self._continues(turn, end, new_signals):
                await turn.commit(self._defer(turn, end, sum(map(needs_response, new_signals))))
                return None
            try:
                self._failpoints.hit("turn.before_c3")
                return await self._close_once(turn, final, late_signals)
            except InboxMoved:
                if end.content.signals:
                    # The signal that ends the turn may have been withdrawn: read again.
                    if ready.drafts:
                        await turn.commit(ready)
                    return None
        raise Conflict(
            f"The inbox changed during each of {MAX_INBOX_TRIES} attempts to end the turn. Another worker tries again."
        )

    async def _close_once(self, turn: LeasedTurn, end: TurnEnd, late_signals: tuple[Signal, ...]) -> TurnEnd:
        context = self._context(turn, _last_round(turn, end))
        settled = settle_late_signals(late_signals, context, self._parts.next_turn_id, turn.show_files)
        content = self._build_step_ends(turn).plus(end.content)
        shown = replace(content, rewind=content.rewind or shows_deferred_again(turn.progress, end))
        final = TurnEnd(end.outcome, end.error, shown.plus(settled.content), end.cut_reason)
        await turn.close(final, promote=settled.promote)
        return final

    def _continues(self, turn: LeasedTurn, end: TurnEnd, new_signals: tuple[Signal, ...]) -> bool:
        """Whether new signals are handled in another round of this turn rather than in the next turn."""
        # A turn ended by a person stays ended, and a model that only repeats itself is not called again.
        if end.error is not None or end.content.signals or repeats_deferred(turn.progress, end):
            return False
        wanted = set(SignalKind) if end.outcome is not Outcome.CAPPED else {SignalKind.STEER}
        pending = [signal for signal in new_signals if signal.kind in wanted and needs_response(signal)]
        return has_room_for(self._limits, turn.progress, pending, after=_last_round(turn, end))

    def _defer(self, turn: LeasedTurn, end: TurnEnd, count: int) -> CommitContent:
        """The answer as it was shown, and the deferral of it."""
        verdict = draft_deferral(self._context(turn, _last_round(turn, end)), count)
        # An answer of an open turn has no event of its own.
        return replace(end.content, drafts=(*end.content.drafts, verdict), rewind=True)

    def _context(self, turn: LeasedTurn, number: int) -> RoundContext:
        limit = round_limit(self._limits, turn.progress)
        return RoundContext(turn.turn_id, number, limit, turn.now(), finalize=turn.progress.is_finalizing)


def _last_round(turn: LeasedTurn, end: TurnEnd) -> int:
    return max((draft.round for draft in end.content.drafts), default=turn.progress.sealed_round)


def _through_last_cancel(signals: tuple[Signal, ...]) -> tuple[Signal, ...]:
    ends = [n for n, signal in enumerate(signals, start=1) if signal.kind is SignalKind.CANCEL]
    return signals[: ends[-1]] if ends else ()


async def _load_new_signals(turn: LeasedTurn, end: TurnEnd) -> tuple[Signal, ...]:
    """Unseen signals that the end does not answer already."""
    answered = {change.signal_id for change in end.content.signals}
    return tuple(signal for signal in await turn.inbox.load_unseen() if signal.id not in answered)


def round_limit(limits: TurnLimits, progress: TurnProgress) -> int:
    """The rounds this turn may have: the base plus the credit of its signals, or what the last steer left."""
    most = max_rounds(limits)
    if progress.is_finalizing:
        return min(progress.steer_round + limits.finalize_rounds - 1, most)
    base = limits.rounds
    earned = base + min(progress.earned_credit, base)
    # A followup that ends the phase after a steer gets its round, even if that phase exceeded the base.
    return min(max(earned, progress.followup_round), most) if progress.steer_round else earned


def max_rounds(limits: TurnLimits) -> int:
    """The upper bound of rounds, whatever signals arrive."""
    return 2 * limits.rounds + limits.finalize_rounds


def has_room_for(limits: TurnLimits, progress: TurnProgress, new_signals: Sequence[Signal], *, after: int) -> bool:
    """Whether signals that arrive after round `after` are handled in this turn: with their credit a round is left.

    A steer brings rounds of its own, so it has room until the upper bound of rounds.
    """
    if any(signal.kind is SignalKind.STEER for signal in new_signals):
        return after < max_rounds(limits)
    base = limits.rounds
    credit = progress.earned_credit + sum(_credit_of(signal) for signal in new_signals)
    return bool(new_signals) and after < base + min(credit, base)


def _credit_of(signal: Signal) -> int:
    if signal.event is not None:
        return signal.event.iteration_credit if signal.event.reactive else 0
    return 1 if signal.kind is SignalKind.FOLLOWUP else 0


def reached_cap(limits: TurnLimits, spent: Spent) -> str | None:
    """The cap that leaves no room for another ordinary round, in words; None if there is room."""
    usage = spent.usage
    if spent.leased_s >= limits.wall_time_s:
        return f"the time limit of {limits.wall_time_s:.0f} s"
    if usage.input_tokens + usage.output_tokens >= limits.tokens:
        return f"the limit of {limits.tokens:,} tokens"
    if usage.cost_usd >= limits.cost_usd:
        return f"the limit of {limits.cost_usd:.2f} USD"
    return None
