"""Choosing which blocks a summary is to stand for. A turn or a round is covered whole or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import Literal

from everturn.model.block_bodies import RangeSummaryBody
from everturn.model.blocks import Block, BlockType
from everturn.model.ids import TurnId
from everturn.timeline.next_step import DECISION_TYPES


@dataclass(frozen=True, slots=True)
class Shown:
    """A block as the model sees it now; an older block may be shown shorter than it is, or not at all."""

    block: Block
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Cut:
    """What a summary stands for. `blocks` are those that `previous`, the summary before it, does not cover yet.

    `saved_tokens` is what these blocks take up now, and the previous summary with them.
    """

    scope: Literal["history", "turn"]
    first_seq: int
    last_seq: int
    blocks: tuple[Block, ...]
    previous: Block | None
    saved_tokens: int


class Reach(IntEnum):
    """How much of the current turn may be covered; what is more is only taken when less is not enough."""

    ROUNDS = 1
    """The older rounds: the last one and the person's prompt stay."""
    PROMPT = 2
    """The prompt too."""
    ALL = 3
    """Everything but the turn's header: the last round and what was said just now."""


def find_summary(
    blocks: Sequence[Block], scope: Literal["history", "turn"], turn_id: TurnId | None = None
) -> Block | None:
    """The last summary of a scope; of scope `turn`, that of this turn."""
    for block in reversed(blocks):
        if isinstance(block.body, RangeSummaryBody) and block.body.scope == scope and turn_id in (None, block.turn_id):
            return block
    return None


def choose_history(
    blocks: Sequence[Block], shown: Sequence[Shown], turn_id: TurnId, *, excess_tokens: int
) -> Cut | None:
    """The oldest ended turns, as few as save `excess_tokens`, or all of them; None when all are covered already."""
    previous, covered = _find_covered(blocks, "history")
    older = [block for block in blocks if block.seq > covered.last_seq and block.turn_id != turn_id]
    turns = [list(turn) for _, turn in groupby(older, key=lambda block: block.turn_id)]
    return _take(turns, covered, _Saved(shown, previous), excess_tokens) if turns else None


def choose_rounds(
    blocks: Sequence[Block], shown: Sequence[Shown], turn_id: TurnId, reach: Reach, *, excess_tokens: int
) -> Cut | None:
    """The oldest rounds of the turn, as few as save `excess_tokens`, or all that `reach` allows; None when these are
    covered already."""
    previous, covered = _find_covered(blocks, "turn", turn_id)
    rounds = _coverable_rounds([block for block in blocks if block.turn_id == turn_id], reach)
    return _take(rounds, covered, _Saved(shown, previous), excess_tokens) if rounds else None


@dataclass(frozen=True, slots=True)
class _Covered:
    """The range that a previous summary of the scope stands for; empty without one."""

    scope: Literal["history", "turn"]
    first_seq: int = 1
    last_seq: int = 0

    def holds(self, seq: int) -> bool:
        return self.first_seq <= seq <= self.last_seq


def _find_covered(
    blocks: Sequence[Block], scope: Literal["history", "turn"], turn_id: TurnId | None = None
) -> tuple[Block | None, _Covered]:
    previous = find_summary(blocks, scope, turn_id)
    if previous is None or not isinstance(previous.body, RangeSummaryBody):
        return None, _Covered(scope)
    return previous, _Covered(scope, previous.body.first_seq, previous.body.last_seq)


class _Saved:
    """What the blocks take up that a summary would stand for; the one before it goes in any case."""

    def __init__(self, shown: Sequence[Shown], previous: Block | None) -> None:
        tokens = {item.block.seq: item.tokens for item in shown if not _is_memory(item.block)}
        self.previous = previous
        self.begin = sum(item.tokens for item in shown if previous is not None and item.block.seq == previous.seq)
        self._tokens = tokens if previous is None else {**tokens, previous.seq: 0}

    def of(self, blocks: Sequence[Block]) -> int:
        return sum(self._tokens.get(block.seq, 0) for block in blocks)


def _is_memory(block: Block) -> bool:
    """A summary of history is shown wherever the turn that it stands in is."""
    return isinstance(block.body, RangeSummaryBody) and block.body.scope == "history"


def _take(pieces: Sequence[Sequence[Block]], covered: _Covered, saved: _Saved, excess_tokens: int) -> Cut | None:
    taken: list[Block] = []
    tokens = saved.begin
    for piece in pieces:
        is_enough = tokens >= excess_tokens and any(not covered.holds(block.seq) for block in taken)
        if is_enough and taken[-1].seq >= covered.last_seq:
            break
        taken += piece
        tokens += saved.of(piece)
    fresh = tuple(block for block in taken if not covered.holds(block.seq))
    if not fresh:
        return None
    first_seq = min(taken[0].seq, covered.first_seq if covered.last_seq else taken[0].seq)
    return Cut(covered.scope, first_seq, max(taken[-1].seq, covered.last_seq), fresh, saved.previous, tokens)


def _coverable_rounds(turn: Sequence[Block], reach: Reach) -> list[list[Block]]:
    """The pieces that may be covered: the prompt with what came with it, then each round."""
    begun = [block for block in turn if block.type is not BlockType.TURN_HEADER]
    rounds = [list(blocks) for _, blocks in groupby(begun, key=lambda block: block.round)]
    if reach is Reach.ALL:
        return rounds
    worked = [block.round for block in turn if block.type in DECISION_TYPES]
    last = worked[-1] if worked else (1 if begun else 0)
    lowest = 1 if reach is Reach.ROUNDS else 0
    return [piece for piece in rounds if lowest <= piece[0].round < last]
