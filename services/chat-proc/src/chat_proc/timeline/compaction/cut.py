"""When to summarize, and which blocks a summary replaces. A turn or a round is covered entirely or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import cached_property
from itertools import groupby
from typing import Literal

from chat_proc.timeline.compaction.sections import KnownRefs, known_refs
from chat_proc.timeline.view import TimelineView, Visibility
from everturn.core.ids import TurnId
from everturn.models.tokens import CharsPerToken
from everturn.timeline.blocks import Block, BlockDraft, BlockType, RangeSummaryBody, chain_blocks

SOFT_PERCENT, HARD_PERCENT, TARGET_PERCENT = 75, 95, 60
TEXT_PERCENT, KEPT_PERCENT = 4, 12
"""Shares of the limit for a summary's text, and for what it keeps verbatim. 3,200 tokens of text are enough for all
sections; 640 are not enough for eight."""
LISTED_TURNS = 40
"""Turns that one summary lists individually; earlier ones are found through the summary before it."""
MIN_LISTED_TURNS = 4
TOKENS_PER_LISTED_TURN = 1_000

WORTH_PERCENT = 5
"""Percentage of the limit that a background summary has to save at least, before subtracting its own length."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A block as the model sees it now; an older block may be shown shortened."""

    block: Block
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The range that a summary replaces. `blocks` are those that `previous`, the summary before it, does not cover yet.

    `saved_tokens` are the tokens of these blocks now, plus the previous summary.
    """

    scope: Literal["history", "turn"]
    first_seq: int
    last_seq: int
    blocks: tuple[Block, ...]
    previous: Block | None
    saved_tokens: int


class Reach(IntEnum):
    """How much of the current turn may be covered; a larger reach is used only if a smaller one is not enough."""

    ROUNDS = 1
    """The older rounds: the last one and the person's prompt remain."""
    PROMPT = 2
    """The prompt too."""
    ALL = 3
    """Everything but the turn's header, including the last round and the newest signals."""


def find_summary(
    blocks: Sequence[Block], scope: Literal["history", "turn"], turn_id: TurnId | None = None
) -> Block | None:
    """The last summary of a scope; for scope `turn`, that of this turn."""
    for block in reversed(blocks):
        if isinstance(block.body, RangeSummaryBody) and block.body.scope == scope and turn_id in (None, block.turn_id):
            return block
    return None


def choose_history(
    blocks: Sequence[Block], shown: Sequence[Shown], turn_id: TurnId, *, excess_tokens: int
) -> Cut | None:
    """The fewest oldest ended turns that save `excess_tokens`, or all of them; None if all are already covered."""
    previous, covered = _find_covered(blocks, "history")
    older = [block for block in blocks if block.seq > covered.last_seq and block.turn_id != turn_id]
    turns = [list(turn) for _, turn in groupby(older, key=lambda block: block.turn_id)]
    return _choose_oldest(turns, covered, _Saved(shown, previous), excess_tokens) if turns else None


def choose_rounds(
    blocks: Sequence[Block], shown: Sequence[Shown], turn_id: TurnId, reach: Reach, *, excess_tokens: int
) -> Cut | None:
    """The fewest oldest rounds of the turn that save `excess_tokens`, or all that `reach` allows; None if these are
    already covered."""
    previous, covered = _find_covered(blocks, "turn", turn_id)
    rounds = _coverable_rounds([block for block in blocks if block.turn_id == turn_id], reach)
    return _choose_oldest(rounds, covered, _Saved(shown, previous), excess_tokens) if rounds else None


@dataclass(frozen=True, slots=True)
class _Covered:
    """The range covered by a previous summary of the scope; empty without one."""

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
    """The tokens of the blocks that a summary would cover; the previous summary is replaced in any case."""

    def __init__(self, shown: Sequence[Shown], previous: Block | None) -> None:
        tokens = {item.block.seq: item.tokens for item in shown if not _is_memory(item.block)}
        self.previous = previous
        self.begin = sum(item.tokens for item in shown if previous is not None and item.block.seq == previous.seq)
        self._tokens = tokens if previous is None else {**tokens, previous.seq: 0}

    def of(self, blocks: Sequence[Block]) -> int:
        return sum(self._tokens.get(block.seq, 0) for block in blocks)


def _is_memory(block: Block) -> bool:
    """A history summary is shown whichever turn contains it."""
    return isinstance(block.body, RangeSummaryBody) and block.body.scope == "history"


def _choose_oldest(
    pieces: Sequence[Sequence[Block]], covered: _Covered, saved: _Saved, excess_tokens: int
) -> Cut | None:
    chosen: list[Block] = []
    tokens = saved.begin
    for piece in pieces:
        is_enough = tokens >= excess_tokens and any(not covered.holds(block.seq) for block in chosen)
        if is_enough and chosen[-1].seq >= covered.last_seq:
            break
        chosen += piece
        tokens += saved.of(piece)
    fresh = tuple(block for block in chosen if not covered.holds(block.seq))
    if not fresh:
        return None
    first_seq = min(chosen[0].seq, covered.first_seq if covered.last_seq else chosen[0].seq)
    return Cut(covered.scope, first_seq, max(chosen[-1].seq, covered.last_seq), fresh, saved.previous, tokens)


def _coverable_rounds(turn: Sequence[Block], reach: Reach) -> list[list[Block]]:
    """The pieces that may be covered: the prompt with its attachments, then each round."""
    begun = [block for block in turn if block.type is not BlockType.TURN_HEADER]
    rounds = [list(blocks) for _, blocks in groupby(begun, key=lambda block: block.round)]
    if reach is Reach.ALL:
        return rounds
    worked = [block.round for block in turn if block.type.traits.is_decision]
    last = worked[-1] if worked else (1 if begun else 0)
    lowest = 1 if reach is Reach.ROUNDS else 0
    return [piece for piece in rounds if lowest <= piece[0].round < last]


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """Limits of one request: system text, timeline, sources and ANNOUNCE together. All numbers are tokens."""

    max_tokens: int = 80_000

    @property
    def soft(self) -> int:
        """From this length on, a summary is made in the background."""
        return self.max_tokens * SOFT_PERCENT // 100

    @property
    def hard(self) -> int:
        """No longer request is sent."""
        return self.max_tokens * HARD_PERCENT // 100

    @property
    def target(self) -> int:
        """The target length of a compaction."""
        return self.max_tokens * TARGET_PERCENT // 100

    @property
    def text_tokens(self) -> int:
        """Limit of a summary's text, and of the model's reply that writes it."""
        return max(1, self.max_tokens * TEXT_PERCENT // 100)

    @property
    def kept_tokens(self) -> int:
        """Limit of the verbatim texts in a summary."""
        return max(1, self.max_tokens * KEPT_PERCENT // 100)

    @property
    def listed_turns(self) -> int:
        """Turns that one summary lists individually."""
        return min(LISTED_TURNS, max(MIN_LISTED_TURNS, self.max_tokens // TOKENS_PER_LISTED_TURN))


def build_context_limits(max_tokens: int, *, context_tokens: int, max_output_tokens: int) -> ContextLimits:
    """The configured limit, or the model's context without its reply if that is less; at least half of the context."""
    room = max(context_tokens - max_output_tokens, context_tokens // 2)
    return ContextLimits(min(max_tokens, room))


@dataclass(frozen=True)
class Snapshot:
    """A conversation at a round boundary, as input of compaction.

    `fixed_tokens` is the part of a request that is not timeline. `round` is the last one with results.
    """

    blocks: tuple[Block, ...]
    turn_id: TurnId
    round: int
    now: str
    fixed_tokens: int
    limits: ContextLimits
    ratio: CharsPerToken

    @cached_property
    def shown(self) -> tuple[Shown, ...]:
        """The blocks that the model sees, in that order."""
        items = TimelineView(self.blocks).items
        return tuple(Shown(item.block, item.text, self.tokens_of(item.text)) for item in items)

    @cached_property
    def tokens(self) -> int:
        """Estimated tokens of a request."""
        return self.fixed_tokens + self.ratio.tokens_for(sum(len(item.text) for item in self.shown))

    @cached_property
    def known(self) -> KnownRefs:
        """Every ref that the model was shown, and the refs of all blocks."""
        return known_refs(self.blocks, (item.text for item in self.shown))

    @cached_property
    def _visibility(self) -> Visibility:
        visibility = Visibility()
        for block in self.blocks:
            visibility.learn(block)
        return visibility

    def tokens_of(self, text: str) -> int:
        return self.ratio.tokens_for(len(text))

    def hidden(self, block: Block) -> str | None:
        """The text with which a hide replaced the block."""
        return self._visibility.replacement_of(block)

    def plus(self, drafts: Sequence[BlockDraft]) -> "Snapshot":
        """The same with these blocks appended, as if they were committed."""
        appended = chain_blocks(drafts, next_seq=self.blocks[-1].seq + 1, last_hash=self.blocks[-1].hash)
        return replace(self, blocks=(*self.blocks, *appended))


class Step(Enum):
    """What is covered next."""

    HISTORY = "history"
    ROUNDS = "rounds"
    PROMPT = "prompt"
    EVERYTHING = "everything"


SOFT_STEPS = (Step.HISTORY, Step.ROUNDS)
HARD_STEPS = tuple(Step)
LAST_RESORTS = (Step.PROMPT, Step.EVERYTHING)
"""Used only if a request could otherwise not be sent at all."""
_REACH = {Step.ROUNDS: Reach.ROUNDS, Step.PROMPT: Reach.PROMPT, Step.EVERYTHING: Reach.ALL}


def choose_cut(snapshot: Snapshot, step: Step) -> Cut | None:
    """The cut of this step; None if it has nothing to do, or the request is short enough without it."""
    limits = snapshot.limits
    if snapshot.tokens <= (limits.hard if step in LAST_RESORTS else limits.target):
        return None
    excess = snapshot.tokens - limits.target + limits.text_tokens + limits.kept_tokens // 2
    if step is Step.HISTORY:
        return choose_history(snapshot.blocks, snapshot.shown, snapshot.turn_id, excess_tokens=excess)
    reach = _REACH[step]
    return choose_rounds(snapshot.blocks, snapshot.shown, snapshot.turn_id, reach, excess_tokens=excess)


def is_worth(snapshot: Snapshot, cut: Cut) -> bool:
    """Whether the cut saves enough to be made in the background."""
    return cut.saved_tokens * 100 >= snapshot.limits.max_tokens * WORTH_PERCENT


def find_step(snapshot: Snapshot, steps: Sequence[Step], *, last_resort: bool = False) -> Step | None:
    """The first step with something to do that is worth it (always, if `last_resort`); None if there is none."""
    for step in steps:
        cut = choose_cut(snapshot, step)
        if cut is not None and (last_resort or is_worth(snapshot, cut)):
            return step
    return None
