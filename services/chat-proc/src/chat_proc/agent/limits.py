"""How much of its limits a turn has used, and what room is left for rounds and new messages."""

from collections.abc import Sequence

from chat_proc.agent.kit import TurnLimits
from chat_proc.turn.leased import Spent
from everturn.timeline.progress import TurnProgress
from everturn.timeline.turns import Signal, SignalKind


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
