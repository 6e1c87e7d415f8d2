"""Which form each block of a timeline is shown in, as the blocks themselves say it.

Only three kinds of block change how earlier ones are shown: a hide, a prune notice, a summary of a range.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from everturn.model import block_bodies as bodies
from everturn.model.blocks import Block, BlockType
from everturn.model.ids import TurnId
from everturn.timeline.inert import escape_line
from everturn.timeline.next_step import PENDING
from everturn.timeline.rendering.block_text import MAX_PROMPT_CHARS, MAX_TEXT_CHARS, block_source, shorten
from everturn.timeline.rendering.forms import Form

NEVER_SHOWN = frozenset(
    {
        BlockType.STAGE_GATE,
        BlockType.ROUND_START,
        BlockType.PLAN_ACK,
        BlockType.HIDE,
        BlockType.CHECKOUT,
        BlockType.APPROVAL_REQUEST,
        BlockType.APPROVAL_OUTCOME,
        BlockType.EXIT,
    }
)
"""What only clients and the runtime need. Plan marks are hidden because the snapshot after them says the same, and
approvals because the result of the call does."""

NEVER_PRUNED = frozenset(
    {
        BlockType.TURN_HEADER,
        BlockType.ANCHOR,
        BlockType.USER_FOLLOWUP,
        BlockType.USER_STEER,
        BlockType.EXTERNAL_EVENT,
        BlockType.PLAN_HISTORY,
    }
)
_SCAFFOLDING = frozenset(
    {BlockType.THINKING, BlockType.NOTES, BlockType.NOTICE, BlockType.DECISION_RAW, BlockType.DEFERRAL}
)
"""What an old turn leaves out altogether; its index still names it."""


def is_never_shown(block: Block) -> bool:
    """Whether the model doesn't see the block in any form. An answer that waits is seen as the completion after it.

    What a program called is told by the result of its run.
    """
    match block.body:
        case bodies.AttemptBody(reason=reason):
            return reason == PENDING
        case bodies.ToolCallBody(parent=parent) | bodies.ToolResultBody(parent=parent):
            return parent is not None
        case bodies.UnknownBody():
            return True
        case _:
            return block.type in NEVER_SHOWN


class BreakReason(StrEnum):
    """Why bytes that a request held are not in the next one."""

    HIDE = "hide"
    PRUNE = "prune"
    COMPACTION = "compaction"
    CHECKPOINT = "checkpoint"
    MEDIA = "media"
    """A turn ended, and its images and documents are no longer attached."""


@dataclass(slots=True)
class _Turn:
    """What decides about the blocks of one turn."""

    first_seq: int
    newest: dict[str, int] = field(default_factory=lambda: {})
    summarized: bool = False
    checkpoint: Block | None = None
    covered: tuple[int, int] = (0, -1)

    def covers(self, seq: int) -> bool:
        return self.covered[0] <= seq <= self.covered[1]


class Visibility:
    """Learns from one block after another. What it says of a block depends on the blocks learnt, not on their order."""

    def __init__(self) -> None:
        self.memory: Block | None = None
        """The newest summary of the history."""
        self._memory_until = 0
        self._turns: dict[TurnId, _Turn] = {}
        self._hidden: dict[str, tuple[int, str]] = {}
        self._notice: Block | None = None
        self._recent_from = 0
        self._intact_from = 0

    def learn(self, block: Block) -> BreakReason | None:
        """The reason when the block may change how earlier ones are shown."""
        turn = self._turns.setdefault(block.turn_id, _Turn(block.seq))
        turn.newest[block.ref] = block.seq
        match block.body:
            case bodies.HideBody() as body:
                through = min(body.through_seq, block.seq - 1)
                self._hidden |= dict.fromkeys(body.refs, (through, body.replacement))
                return BreakReason.HIDE
            case bodies.RangeSummaryBody(scope="turn") as body:
                turn.checkpoint, turn.covered = block, (body.first_seq, min(body.last_seq, block.seq - 1))
                return BreakReason.CHECKPOINT
            case bodies.RangeSummaryBody() as body:
                # The turn that a summary stands in is never summarized away.
                self.memory, self._memory_until = block, min(body.last_seq, turn.first_seq - 1)
                return BreakReason.COMPACTION
            case bodies.SystemMessageBody() as body:
                self._notice = block
                self._recent_from = min(body.recent_from_seq, turn.first_seq)
                self._intact_from = min(body.intact_from_seq, turn.first_seq)
                return BreakReason.PRUNE
            case bodies.SummaryBody():
                turn.summarized = True
            case _:
                """The others say nothing of earlier blocks."""
        return None

    def choose_form(self, block: Block) -> Form:
        """LIGHT means at most light: a block without bulk is shown in full there too.

        A block of a turn that was never learnt, read back from before the memory or from elsewhere, is not shown.
        """
        turn = self._turns.get(block.turn_id)
        if turn is None or block.seq <= self._memory_until:
            return Form.GONE
        match block.body:
            case bodies.RangeSummaryBody():
                return Form.FULL if block in (self.memory, turn.checkpoint) else Form.GONE
            case bodies.SystemMessageBody():
                return Form.FULL if block is self._notice else Form.GONE
            case bodies.TurnHeaderBody():
                return Form.FULL
            case _ if turn.covers(block.seq):
                return Form.GONE
            case _ if is_never_shown(block):
                return Form.ROW if block.type is BlockType.EXIT and self._is_old(turn) else Form.GONE
            case _ if self.replacement_of(block) is not None:
                return Form.REPLACED
            case _ if self._is_old(turn):
                return _form_in_old_turn(block, turn)
            case _:
                spared = block.type in NEVER_PRUNED or block.type is BlockType.WORKING_SUMMARY
                is_light = turn.first_seq < self._intact_from and not spared
                return Form.LIGHT if is_light else Form.FULL

    def notices(self, turn_id: TurnId) -> tuple[str, ...]:
        """What is shown short, and by which block one knows; a line each."""
        turn = self._turns.get(turn_id)
        lines = [f"older turns are summarized in {self.memory.ref}"] if self.memory else []
        lines += [f"older turns are shown short, as {self._notice.ref} says"] if self._notice else []
        if turn is not None and turn.checkpoint is not None:
            lines.append(f"earlier rounds of this turn are summarized in {turn.checkpoint.ref}")
        lines += [f"hidden refs: {len(self._hidden)}; react.read shows them again"] if self._hidden else []
        return tuple(map(escape_line, lines))

    def replacement_of(self, block: Block) -> str | None:
        """The text that a hide put in the block's place."""
        through, replacement = self._hidden.get(block.ref, (0, ""))
        return replacement if block.seq <= through else None

    def checkpoint_over(self, block: Block) -> Block | None:
        """The checkpoint that stands for this block, if there is one."""
        turn = self._turns[block.turn_id]
        is_covered = (
            turn.covers(block.seq) and block.seq > self._memory_until and block.type is not BlockType.TURN_HEADER
        )
        return turn.checkpoint if is_covered else None

    def _is_old(self, turn: _Turn) -> bool:
        return turn.first_seq < self._recent_from


def _form_in_old_turn(block: Block, turn: _Turn) -> Form:
    if block.type in NEVER_PRUNED:
        return Form.FULL
    if block.type is BlockType.WORKING_SUMMARY:
        return Form.CARD
    if turn.summarized or block.type in _SCAFFOLDING or turn.newest[block.ref] != block.seq:
        return Form.GONE
    return Form.ROW


def is_shown_whole(block: Block) -> bool:
    """Whether its full form holds all of its text, so that reading it again would only repeat it."""
    if is_never_shown(block):
        return False
    if isinstance(block.body, bodies.ToolCallBody):
        return shorten(block.body.params) == block.body.params
    cap = MAX_PROMPT_CHARS if isinstance(block.body, bodies.PromptBody | bodies.SignalBody) else MAX_TEXT_CHARS
    return len(block_source(block)) <= cap
