"""What a turn may spend: rounds, time, tokens and money. A reached cap leads to a closing answer, never to silence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from everturn.model.block_bodies import TurnHeaderBody
from everturn.model.blocks import Block, BlockType
from everturn.model.turns import TurnUsage


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Caps of one turn. Rounds are the base, to which each followup adds one, at most doubling it."""

    rounds: int = 15
    rounds_of_bundle: Mapping[str, int] = field(default_factory=lambda: {})
    """For turns of these bundles, in place of `rounds`."""
    wall_time_s: float = 1800.0
    tokens: int = 2_000_000
    cost_usd: float = 10.0
    max_output_tokens: int = 8192
    """Of one reply."""
    max_repairs: int = 2
    """Unusable replies in a row that are answered with a notice; the next one leads to the closing call."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a turn has used so far, also by workers that died. `elapsed_s` counts from the turn's start."""

    usage: TurnUsage
    elapsed_s: float


def round_limit(limits: TurnLimits, turn_blocks: Sequence[Block]) -> int:
    """The rounds this turn may have, with the credit of the followups folded so far."""
    followups = sum(1 for block in turn_blocks if block.type is BlockType.USER_FOLLOWUP)
    base = base_rounds(limits, turn_blocks)
    return base + min(followups, base)


def base_rounds(limits: TurnLimits, turn_blocks: Sequence[Block]) -> int:
    """The rounds a turn of this bundle has by itself; its header names the bundle."""
    headers = (block.body for block in turn_blocks if isinstance(block.body, TurnHeaderBody))
    bundle_id = next((header.bundle_id for header in headers), None)
    return limits.rounds_of_bundle.get(bundle_id or "", limits.rounds)


def reached_cap(limits: TurnLimits, spent: Spent) -> str | None:
    """The cap that leaves no room for another ordinary round, in words; None when there is room."""
    usage = spent.usage
    if spent.elapsed_s >= limits.wall_time_s:
        return f"the time limit of {limits.wall_time_s:.0f} s"
    if usage.input_tokens + usage.output_tokens >= limits.tokens:
        return f"the limit of {limits.tokens} tokens"
    if usage.cost_usd >= limits.cost_usd:
        return f"the limit of {limits.cost_usd:.2f} USD"
    return None
