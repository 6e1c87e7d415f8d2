"""What a turn may spend: rounds, time, tokens and money. At a reached cap the turn ends with a closing answer, never
silently."""

from collections.abc import Sequence
from dataclasses import dataclass

from chat_proc.turn.leased import Spent
from everturn.timeline.blocks import Block, BlockType
from everturn.timeline.bodies import EventBody
from everturn.timeline.turns import Signal, SignalKind

FOLLOWUP, STEER = BlockType.USER_FOLLOWUP, BlockType.USER_STEER


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Caps of one turn. `rounds` is the base; each followup adds one round, until the base is doubled."""

    rounds: int = 15
    wall_time_s: float = 1800.0
    tokens: int = 2_000_000
    cost_usd: float = 10.0
    max_output_tokens: int = 8192
    """Of one reply."""
    max_repairs: int = 2
    """Unusable replies in a row that are answered with a notice; the next one leads to the closing call."""
    finalize_rounds: int = 2
    """Rounds left to the turn after a steer with text: the round that reads it, and those after it."""
    finalize_output_tokens: int = 3_000
    """Of one reply in such a round."""


def round_limit(limits: TurnLimits, turn_blocks: Sequence[Block]) -> int:
    """The rounds this turn may have: the base plus the credit of its signals, or what the last steer left."""
    steered, followed_up = _last_round_of(turn_blocks, STEER), _last_round_of(turn_blocks, FOLLOWUP)
    most = max_rounds(limits)
    if steered > followed_up:
        return min(steered + limits.finalize_rounds - 1, most)
    base = limits.rounds
    earned = base + min(earned_credit(turn_blocks), base)
    # A followup that ends the phase after a steer gets its round, even if that phase exceeded the base.
    return min(max(earned, followed_up), most) if steered else earned


def max_rounds(limits: TurnLimits) -> int:
    """The upper bound of rounds, whatever signals arrive."""
    return 2 * limits.rounds + limits.finalize_rounds


def is_finalizing(turn_blocks: Sequence[Block]) -> bool:
    """Whether a steer came last, so that the turn is only to be finished.

    A followup of the same round takes precedence, in either order.
    """
    return _last_round_of(turn_blocks, STEER) > _last_round_of(turn_blocks, FOLLOWUP)


def has_room_for(
    limits: TurnLimits, turn_blocks: Sequence[Block], new_signals: Sequence[Signal], *, after: int
) -> bool:
    """Whether signals that arrive after round `after` are handled in this turn: with their credit a round is left.

    A steer brings rounds of its own, so it has room until the upper bound of rounds.
    """
    if any(signal.kind is SignalKind.STEER for signal in new_signals):
        return after < max_rounds(limits)
    base = limits.rounds
    credit = earned_credit(turn_blocks) + sum(_credit_of(signal) for signal in new_signals)
    return bool(new_signals) and after < base + min(credit, base)


def earned_credit(turn_blocks: Sequence[Block]) -> int:
    """The rounds that signals added, before any bound: one for each followup, and for an event the credit that it
    states.

    Signals that the turn began with add none: all its rounds were still available.
    """
    events = (block.body for block in turn_blocks if block.round > 0 and isinstance(block.body, EventBody))
    return sum(1 for block in turn_blocks if block.type is FOLLOWUP) + sum(event.credit for event in events)


def _credit_of(signal: Signal) -> int:
    if signal.event is not None:
        return signal.event.iteration_credit if signal.event.reactive else 0
    return 1 if signal.kind is SignalKind.FOLLOWUP else 0


def _last_round_of(turn_blocks: Sequence[Block], kind: BlockType) -> int:
    return max((block.round for block in turn_blocks if block.type is kind), default=0)


def reached_cap(limits: TurnLimits, spent: Spent) -> str | None:
    """The cap that leaves no room for another ordinary round, in words; None if there is room."""
    usage = spent.usage
    if spent.leased_s >= limits.wall_time_s:
        return f"the time limit of {limits.wall_time_s:.0f} s"
    if usage.input_tokens + usage.output_tokens >= limits.tokens:
        return f"the limit of {limits.tokens} tokens"
    if usage.cost_usd >= limits.cost_usd:
        return f"the limit of {limits.cost_usd:.2f} USD"
    return None
