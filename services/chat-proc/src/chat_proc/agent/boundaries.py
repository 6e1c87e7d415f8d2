"""What every workflow does between the rounds of a turn: folds new messages, checks the limits, and ends the turn."""

from collections.abc import Sequence
from dataclasses import replace

from chat_proc.agent.drafting import RoundContext, draft_missing_start
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.limits import has_room_for, reached_cap, round_limit
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
from chat_proc.agent.step_results import build_step_ends
from chat_proc.agent.tool_calls import ToolRunner
from chat_proc.channels.decision_problems import TOO_LONG_CODES
from chat_proc.turn.leased import NOTHING, CommitContent, LeasedTurn, TurnEnd
from everturn.core.errors import Conflict
from everturn.timeline.progress import ExecuteCalls, FinishTurn
from everturn.timeline.turns import CONTROL_KINDS, Outcome, Signal, SignalKind
from everturn.turns.ports import InboxMoved


class TurnBoundaries:
    """Folds signals into turns of one kit, and ends these turns; keeps no state of them."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies) -> None:
        self._limits = kit.limits
        self._attachments = parts.attachments
        self._next_turn_id = parts.next_turn_id
        self._failpoints = parts.failpoints
        self._tools = ToolRunner(kit, parts)

    async def fold(self, turn: LeasedTurn, number: int, *, ends_steps: bool = False) -> TurnEnd | None:
        """Fold new signals into the round that begins; returns the turn's end if they end it. With `ends_steps`, only
        if a steer or a cancel is among them, and the steps that have begun end with it."""
        for _ in range(MAX_INBOX_TRIES):
            signals = await turn.inbox.load_unseen()
            if ends_steps and not any(signal.kind in CONTROL_KINDS for signal in signals):
                return None
            if ending := through_last_end(signals):
                # No round begins: the signals are recorded in the last one.
                return self.end_by_signals(turn, ending, number - 1)
            verdict = try_draft_withdrawn_stop(self.build_context(turn, number - 1), turn.progress)
            if not signals and verdict is None:
                return None
            context = self.build_context(turn, number)
            begin = draft_missing_start(context, turn.progress)
            start = CommitContent(drafts=tuple(begin if verdict is None else [verdict, *begin]))
            if ends_steps:
                start = build_step_ends(turn).plus(start)
            files = [artifact for signal in signals for artifact in signal.attachments]
            previews = await self._attachments.load_previews(files)
            folded = fold_signals(signals, context, turn.show_files, previews)
            try:
                await turn.commit(start.plus(folded.content))
            except InboxMoved:
                # A signal was edited or withdrawn between the read and the commit.
                continue
            return None
        raise Conflict(f"Signals changed {MAX_INBOX_TRIES} times while they were folded.")

    def end_by_signals(self, turn: LeasedTurn, ending: Sequence[Signal], number: int) -> TurnEnd:
        """The end of the turn by its last signals, which are recorded in this round."""
        folded = fold_signals(ending, self.build_context(turn, number), turn.show_files)
        return TurnEnd(Outcome.CANCELLED if folded.cancel else Outcome.STOPPED, content=folded.content)

    async def fold_before_draft(self, turn: LeasedTurn, step: FinishTurn) -> bool:
        """Fold messages that arrived before a draft was shown, so that the next round covers them, too. False if there
        are none, or no round is left for them, or they end the turn: then the draft becomes the answer."""
        if not step.attempt.is_draft:
            return False
        signals = await turn.inbox.load_unseen()
        wanted = [signal for signal in signals if needs_response(signal)]
        last = turn.progress.sealed_round
        if not wanted or through_last_end(signals) or not has_room_for(self._limits, turn.progress, wanted, after=last):
            return False
        return await self.fold(turn, last + 1) is None

    async def close(self, turn: LeasedTurn, end: TurnEnd) -> TurnEnd:
        """End the turn, whatever it was doing; signals that arrive meanwhile become the next turn."""
        for step_id in ("", *turn.progress.lanes):
            await self._give_up_calls(turn.open_lane(step_id, ()) if step_id else turn)
        for _ in range(MAX_INBOX_TRIES):
            try:
                return await self._close_once(turn, end, await _load_new_signals(turn, end))
            except InboxMoved:
                continue
        raise Conflict(
            f"The inbox changed during each of {MAX_INBOX_TRIES} attempts to end the turn. Another worker tries again."
        )

    async def _give_up_calls(self, lane: LeasedTurn) -> None:
        """Settle calls that have no result. Questions to a person end with the turn."""
        step = lane.progress.next_step()
        if not isinstance(step, ExecuteCalls):
            return
        for call in step.calls:
            if call.block.call_id not in lane.progress.questions:
                context = RoundContext(lane.turn_id, step.round, step.round, lane.now())
                await lane.commit(self._tools.give_up(lane, call, context))

    async def try_close(self, turn: LeasedTurn, end: TurnEnd, ready: CommitContent = NOTHING) -> TurnEnd | None:
        """End the turn; returns None if a new signal opens one more round instead.

        `ready`, a summary that is part of the end's content, is kept even if the turn continues.
        """
        for _ in range(MAX_INBOX_TRIES):
            new_signals = await _load_new_signals(turn, end)
            final, late_signals = end, new_signals
            if end.error is None and (cancelling := _through_last_cancel(new_signals)):
                context = self.build_context(turn, _last_round(turn, end))
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
        context = self.build_context(turn, _last_round(turn, end))
        settled = settle_late_signals(late_signals, context, self._next_turn_id, turn.show_files)
        content = build_step_ends(turn).plus(end.content)
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
        verdict = draft_deferral(self.build_context(turn, _last_round(turn, end)), count)
        # An answer of an open turn has no event of its own.
        return replace(end.content, drafts=(*end.content.drafts, verdict), rewind=True)

    def find_cap(self, turn: LeasedTurn, number: int) -> str | None:
        """The limit that leaves no room for this round, in words."""
        context = self.build_context(turn, number)
        if context.round > context.limit:
            return "the limit of rounds after a steer" if context.finalize else f"the limit of {context.limit} rounds"
        if len(codes := turn.progress.failure_streak) > self._limits.max_repairs:
            if TOO_LONG_CODES.issuperset(codes):
                return f"the output limit of one reply {len(codes)} times in a row"
            return "the limit on replies that could not be used"
        return reached_cap(self._limits, turn.spent)

    def build_context(self, turn: LeasedTurn, number: int) -> RoundContext:
        """What a round of the turn itself writes into its blocks."""
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
