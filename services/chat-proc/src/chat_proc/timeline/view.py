"""What the model sees of a conversation: a pure fold over its blocks into visible items.

Turns don't interleave, because a conversation runs at most one at a time. So an appended block changes nothing that was
visible before, unless it says so itself. Hidden, pruned and summarized items are folded here too.

Only three kinds of block change how earlier ones are shown: a hide, a prune notice, and a range summary.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from chat_proc.attachments.media import AttachedMedia, MediaBudget, can_see
from chat_proc.timeline.artifacts import block_media
from everturn.core.ids import TurnId
from everturn.models.port import MediaData, MediaPart, ModelTraits, PromptMessage, RecordPart, TextPart
from everturn.models.tokens import CharsPerToken
from everturn.timeline.blocks import (
    AttemptBody,
    Block,
    BlockType,
    HideBody,
    PromptBody,
    RangeSummaryBody,
    Shown,
    SignalBody,
    SummaryBody,
    SystemMessageBody,
    ThinkingBody,
    ToolCallBody,
    ToolResultBody,
    TurnHeaderBody,
    UnknownBody,
)
from everturn.timeline.forms import UNSEEN, Form, render_card, render_full, render_replaced, render_row, try_light
from everturn.timeline.inert import escape_line
from everturn.timeline.progress import PENDING
from everturn.timeline.rendering import MAX_PROMPT_CHARS, MAX_TEXT_CHARS, block_source, shorten

PRE_TAIL_ROUNDS = 4
"""Rounds between the second point and the tail: after a change of the last rounds, requests still hit the cache before
them."""
MIN_ROUNDS = 2
_STABLE = frozenset({Form.FULL, Form.CARD, Form.ROW})


def is_never_shown(block: Block) -> bool:
    """Whether the model doesn't see the block in any form. A pending answer is shown as the completion after it.

    The calls of a program are reported in the result of its run. Reasoning is not sent back to a provider.
    """
    match block.body:
        case AttemptBody(reason=reason):
            return reason == PENDING
        case ToolCallBody(parent=parent) | ToolResultBody(parent=parent):
            return parent is not None
        case ThinkingBody(is_reasoning=True) | UnknownBody():
            return True
        case _:
            return block.type.traits.shown is Shown.NEVER


class BreakReason(StrEnum):
    """Why bytes of one request are not in the next one."""

    HIDE = "hide"
    PRUNE = "prune"
    COMPACTION = "compaction"
    CHECKPOINT = "checkpoint"
    MEDIA = "media"
    """A turn ended, and its images and documents are no longer attached."""


@dataclass(slots=True)
class _Turn:
    """The state that decides how the blocks of one turn are shown."""

    first_seq: int
    newest: dict[str, int] = field(default_factory=lambda: {})
    summarized: bool = False
    checkpoint: Block | None = None
    covered: tuple[int, int] = (0, -1)

    def covers(self, seq: int) -> bool:
        return self.covered[0] <= seq <= self.covered[1]


class Visibility:
    """Learns from one block after another. The chosen form of a block depends on the learned blocks, not on their
    order."""

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
        """Learn from a block; returns the reason if it may change how earlier ones are shown."""
        turn = self._turns.setdefault(block.turn_id, _Turn(block.seq))
        turn.newest[block.ref] = block.seq
        match block.body:
            case HideBody() as body:
                through = min(body.through_seq, block.seq - 1)
                self._hidden |= dict.fromkeys(body.refs, (through, body.replacement))
                return BreakReason.HIDE
            case RangeSummaryBody(scope="turn") as body:
                turn.checkpoint, turn.covered = block, (body.first_seq, min(body.last_seq, block.seq - 1))
                return BreakReason.CHECKPOINT
            case RangeSummaryBody() as body:
                # The turn that contains a summary is never covered by it.
                self.memory, self._memory_until = block, min(body.last_seq, turn.first_seq - 1)
                return BreakReason.COMPACTION
            case SystemMessageBody() as body:
                self._notice = block
                self._recent_from = min(body.recent_from_seq, turn.first_seq)
                self._intact_from = min(body.intact_from_seq, turn.first_seq)
                return BreakReason.PRUNE
            case SummaryBody():
                turn.summarized = True
            case _:
                """The others don't change earlier blocks."""
        return None

    def choose_form(self, block: Block) -> Form:
        """LIGHT means at most light: a block without bulk is still shown in full.

        A block of a turn that was never learned, such as one loaded from before the memory, is not shown.
        """
        turn = self._turns.get(block.turn_id)
        if turn is None or block.seq <= self._memory_until:
            return Form.GONE
        match block.body:
            case RangeSummaryBody():
                return Form.FULL if block in (self.memory, turn.checkpoint) else Form.GONE
            case SystemMessageBody():
                return Form.FULL if block is self._notice else Form.GONE
            case TurnHeaderBody():
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
                spared = block.type.traits.shown in (Shown.ALWAYS, Shown.CARD_WHEN_OLD)
                is_light = turn.first_seq < self._intact_from and not spared
                return Form.LIGHT if is_light else Form.FULL

    def notices(self, turn_id: TurnId) -> tuple[str, ...]:
        """What is shown shortened, and by which block; one line each."""
        turn = self._turns.get(turn_id)
        lines = [f"older turns are summarized in {self.memory.ref}"] if self.memory else []
        lines += [f"older turns are shown shortened, see {self._notice.ref}"] if self._notice else []
        if turn is not None and turn.checkpoint is not None:
            lines.append(f"earlier rounds of this turn are summarized in {turn.checkpoint.ref}")
        lines += [f"hidden refs: {len(self._hidden)}; react.read shows them again"] if self._hidden else []
        return tuple(map(escape_line, lines))

    def replacement_of(self, block: Block) -> str | None:
        """The text that a hide put in the block's place."""
        through, replacement = self._hidden.get(block.ref, (0, ""))
        return replacement if block.seq <= through else None

    def checkpoint_over(self, block: Block) -> Block | None:
        """The checkpoint that covers this block, if any."""
        turn = self._turns[block.turn_id]
        is_covered = (
            turn.covers(block.seq) and block.seq > self._memory_until and block.type is not BlockType.TURN_HEADER
        )
        return turn.checkpoint if is_covered else None

    def _is_old(self, turn: _Turn) -> bool:
        return turn.first_seq < self._recent_from


def _form_in_old_turn(block: Block, turn: _Turn) -> Form:
    match block.type.traits.shown:
        case Shown.ALWAYS:
            return Form.FULL
        case Shown.CARD_WHEN_OLD:
            return Form.CARD
        case Shown.ROW_WHEN_OLD:
            is_replaced = turn.summarized or turn.newest[block.ref] != block.seq
            return Form.GONE if is_replaced else Form.ROW
        case Shown.GONE_WHEN_OLD | Shown.NEVER:
            return Form.GONE


def is_shown_whole(block: Block) -> bool:
    """Whether its full form contains all of its text, so that reading it again would only repeat it."""
    if is_never_shown(block):
        return False
    if isinstance(block.body, ToolCallBody):
        return shorten(block.body.params) == block.body.params
    cap = MAX_PROMPT_CHARS if isinstance(block.body, PromptBody | SignalBody) else MAX_TEXT_CHARS
    return len(block_source(block)) <= cap


@dataclass(frozen=True, slots=True)
class Break:
    """Block `seq` changed what was visible: the items before `index` are unchanged."""

    reason: BreakReason
    seq: int
    index: int


@dataclass(frozen=True, slots=True)
class VisibleBlock:
    """One item of the view. `text` is everything that the model reads of the block."""

    block: Block
    form: Form
    text: str


class TimelineView:
    """Grows with its timeline. `items` is what is visible now, `breaks` every change of what was visible before."""

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self.items: list[VisibleBlock] = []
        self.breaks: list[Break] = []
        self.chars = 0
        """The total of all items."""
        self.texts_built = 0
        """Texts rendered so far: a block counts once for each form it was shown in."""
        self.turn_id: TurnId = TurnId("")
        """The newest turn."""
        self.turn_at = 0
        """The index of its first item."""
        self.with_media: list[int] = []
        """The indexes of its items that show images or PDFs."""
        self._blocks: list[Block] = []
        self._visibility = Visibility()
        self._shown: dict[int, VisibleBlock] = {}
        self.extend(blocks)

    @property
    def blocks(self) -> Sequence[Block]:
        """All blocks added so far."""
        return self._blocks

    @property
    def visibility(self) -> Visibility:
        """The state learned from the blocks; only the view updates it."""
        return self._visibility

    def extend(self, blocks: Iterable[Block]) -> None:
        """Add the next blocks. The cost is linear in these, unless one of them changes what was visible."""
        added = tuple(blocks)
        turn_id, with_media = self.turn_id, self.with_media
        self._blocks.extend(added)
        reasons = [(reason, block.seq) for block in added if (reason := self._visibility.learn(block)) is not None]
        if reasons:
            self._fold_again(reasons)
        else:
            for block in added:
                if not is_never_shown(block):
                    self._add(block, Form.FULL, {})
        if with_media and self.turn_id != turn_id:
            seq = next(block.seq for block in added if block.turn_id != turn_id)
            self.breaks.append(Break(BreakReason.MEDIA, seq, min(with_media[0], self.turn_at)))

    def tokens(self, ratio: CharsPerToken) -> int:
        """Estimated tokens of all items, without images and PDFs."""
        return ratio.tokens_for(self.chars)

    def form_of(self, block: Block) -> Form:
        """How a block is shown now."""
        item = self._shown.get(block.seq)
        return item.form if item else Form.GONE

    def _fold_again(self, reasons: Sequence[tuple[BreakReason, int]]) -> None:
        """Choose every form again; a text is rendered again only if its form changes."""
        before, kept = self.items, self._shown
        self.items, self._shown = [], {}
        self.chars = self.turn_at = 0
        self.turn_id, self.with_media = TurnId(""), []
        if self._visibility.memory is not None:
            self._add(self._visibility.memory, Form.FULL, kept)
        replaced: set[str] = set()
        for block in self._blocks:
            if (checkpoint := self._visibility.checkpoint_over(block)) is not None:
                self._add(checkpoint, Form.FULL, kept)
            form = self._visibility.choose_form(block)
            if form is Form.REPLACED and block.ref in replaced:
                continue
            if form is Form.REPLACED:
                replaced.add(block.ref)
            if form is not Form.GONE:
                self._add(block, form, kept)
        same = _count_same(before, self.items)
        if same < len(before):
            self.breaks.extend(Break(reason, seq, same) for reason, seq in reasons)

    def _add(self, block: Block, form: Form, kept: dict[int, VisibleBlock]) -> None:
        """Add an item. A summary replaces the blocks that it covers, so it may already be present."""
        if block.seq in self._shown:
            return
        item = self._try_reuse(block, form, kept.get(block.seq)) or self._build_item(block, form)
        if block.turn_id != self.turn_id and block is not self._visibility.memory:
            self.turn_id, self.turn_at, self.with_media = block.turn_id, len(self.items), []
        if item.form is Form.FULL and block_media(block):
            self.with_media.append(len(self.items))
        self.items.append(item)
        self._shown[block.seq] = item
        self.chars += len(item.text)

    def _try_reuse(self, block: Block, form: Form, item: VisibleBlock | None) -> VisibleBlock | None:
        if item is None:
            return None
        if form is Form.REPLACED:
            text = render_replaced(block, self._visibility.replacement_of(block) or "")
            return item if item.text == text else None
        if form is Form.LIGHT and item.form is Form.FULL:
            return item if try_light(block) is None else None
        return item if item.form is form else None

    def _build_item(self, block: Block, form: Form) -> VisibleBlock:
        self.texts_built += 1
        match form:
            case Form.FULL:
                return VisibleBlock(block, form, render_full(block))
            case Form.LIGHT:
                light = try_light(block)
                return VisibleBlock(block, Form.FULL if light is None else form, light or render_full(block))
            case Form.ROW:
                return VisibleBlock(block, form, render_row(block))
            case Form.CARD:
                return VisibleBlock(block, form, render_card(block))
            case Form.REPLACED:
                replacement = self._visibility.replacement_of(block) or ""
                return VisibleBlock(block, form, render_replaced(block, replacement))
            case Form.GONE:
                raise ValueError("A removed block has no text.")
            case _:
                assert_never(form)


def _count_same(before: Sequence[VisibleBlock], after: Sequence[VisibleBlock]) -> int:
    """The number of equal items at the start of both."""
    pairs = zip(before, after, strict=False)
    return next((n for n, (old, new) in enumerate(pairs) if old is not new), min(len(before), len(after)))


@dataclass(frozen=True, slots=True)
class CachePoints:
    """Where a request asks the provider to cache: after the system text, and at up to three places of the timeline. A
    point lies on stable text: never on a hidden or light block, and never on an open round.

    Indexes of items. `tail` ends the last completed round, or the turn's opening if no round is completed.
    """

    previous_turn: int | None = None
    pre_tail: int | None = None
    tail: int | None = None

    @property
    def indexes(self) -> frozenset[int]:
        return frozenset(at for at in (self.previous_turn, self.pre_tail, self.tail) if at is not None)


def choose_cache_points(items: Sequence[VisibleBlock], turn_at: int) -> CachePoints:
    """Choose the points. `turn_at` is the index of the newest turn's first item; only its last rounds are
    considered."""
    previous = next((at for at in range(turn_at - 1, -1, -1) if items[at].form in _STABLE), None)
    ends = _completed_ends(items, turn_at)
    if not ends:
        opening = (at for at in range(len(items) - 1, turn_at - 1, -1) if _is_candidate(items[at]))
        tail = next((at for at in opening if items[at].block.round == 0), None)
        return CachePoints(previous, None, tail)
    pre_tail = ends[-1] if len(ends) >= MIN_ROUNDS else None
    return CachePoints(previous, pre_tail, ends[0])


def first_editable_seq(items: Sequence[VisibleBlock], turn_at: int) -> int:
    """Blocks from this `seq` on may be hidden. Earlier blocks are cached: hiding them would cost more than it saves."""
    points = choose_cache_points(items, turn_at)
    if points.pre_tail is not None:
        return items[points.pre_tail].block.seq + 1
    return items[turn_at].block.seq if turn_at < len(items) else 1


def _completed_ends(items: Sequence[VisibleBlock], turn_at: int) -> list[int]:
    """The ends of the last completed rounds, newest first, at most PRE_TAIL_ROUNDS + 1."""
    ends: dict[int, int] = {}
    completed: list[int] = []
    for at in range(len(items) - 1, turn_at - 1, -1):
        block = items[at].block
        if block.round == 0 or not _is_candidate(items[at]):
            continue
        if block.round not in ends and len(completed) == PRE_TAIL_ROUNDS + 1:
            break
        ends.setdefault(block.round, at)
        if block.type.traits.is_decision and block.round not in completed:
            completed.append(block.round)
    return [ends[number] for number in completed]


def _is_candidate(item: VisibleBlock) -> bool:
    return item.form is Form.FULL and item.block.type is not BlockType.RANGE_SUMMARY


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class RenderedItem:
    """An item of the view as requests contain it: its text, then its images and PDFs. Every request up to a break has
    the same object."""

    item: VisibleBlock
    parts: tuple[RecordPart, ...]
    start: int
    """The index of its first part in the user message."""


class PromptRenderer:
    """Renders one conversation for one model, each block once: each request repeats the previous one up to a break.

    Everything but the system text is one user message with one part for each block: the model reads its earlier work as
    a record, not as an example of how to write, and no provider's rule about alternating roles can shift a part.
    """

    def __init__(self, *, system_prompt: str, traits: ModelTraits) -> None:
        self.view = TimelineView()
        self.renders_for = system_prompt, traits
        """The system text and the model that it renders for."""
        self.system = PromptMessage("system", (TextPart(system_prompt, cache_point=True),))
        self._traits = traits
        self._parts: list[RecordPart] = []
        self.rendered: list[RenderedItem] = []
        """The items of the last request."""
        self._breaks_added = 0
        self._media = MediaBudget()
        self._missing: dict[int, frozenset[str]] = {}
        """For each item, the images and PDFs, by sha256, that were not loaded when it was rendered."""

    def take(self, blocks: Sequence[Block]) -> tuple[Break, ...]:
        """Add new blocks; returns the breaks that they declare."""
        self.view.extend(blocks)
        breaks = tuple(self.view.breaks[self._breaks_added :])
        self._breaks_added = len(self.view.breaks)
        if breaks:
            self._forget_from(min(each.index for each in breaks))
        return breaks

    @property
    def wanted_media(self) -> tuple[AttachedMedia, ...]:
        """The images and PDFs that the next request shows if there is room, in order: those of the newest turn that the
        model can see and that are not hidden."""
        items = (self.view.items[at] for at in self.view.with_media)
        return tuple(media for item in items for media in self._visible_media(item))

    def render(self, tail: Sequence[str], media: Mapping[str, MediaData]) -> tuple[PromptMessage, ...]:
        """The request's messages. `tail` are the texts after the timeline, never cached; `media` are the files of
        `wanted_media` by sha256, without those that could not be loaded or have no room."""
        self.attach(media)
        parts = list(self._parts)
        for at in self.cache_points.indexes:
            start = self.rendered[at].start
            if isinstance(part := parts[start], TextPart):
                parts[start] = TextPart(part.text, cache_point=True)
        parts.extend(TextPart(text) for text in tail if text)
        return (self.system, PromptMessage("user", tuple(parts)))

    def attach(self, media: Mapping[str, MediaData]) -> None:
        """Render the new items since the last request, with their images and PDFs.

        If a file that could not be loaded before is available now, everything from its item on is rendered again: a new
        prompt prefix costs less than an answer about a picture that the model has not seen.
        """
        arrived = [at for at, missing in self._missing.items() if not missing.isdisjoint(media)]
        if arrived:
            self._forget_from(min(arrived))
        for at in range(len(self.rendered), len(self.view.items)):
            self._append(at, media)

    def drop_media(self) -> None:
        """Release the images and PDFs: no request after their turn contains them. Their items are rendered again."""
        if self.view.with_media:
            self._forget_from(self.view.with_media[0])

    @property
    def cache_points(self) -> CachePoints:
        """The cache points of the next request, in addition to the system text."""
        return choose_cache_points(self.view.items, self.view.turn_at)

    def tokens(self, ratio: CharsPerToken, tail: Sequence[str] = ()) -> int:
        """Estimated tokens of the request with this tail, and with the media attached so far."""
        chars = sum(len(part.text) for part in self.system.parts if isinstance(part, TextPart))
        chars += self.view.chars + sum(map(len, tail))
        return ratio.tokens_for(chars) + self._media.tokens

    def _append(self, at: int, media: Mapping[str, MediaData]) -> None:
        item = self.view.items[at]
        visible = self._visible_media(item)
        attached: list[MediaPart] = []
        if at >= self.view.turn_at:
            loaded = [(each, media[each.sha256]) for each in visible if each.sha256 in media]
            attached = [part for each, data in loaded if (part := self._media.try_attach(each, data))]
            if missing := frozenset(each.sha256 for each in visible) - media.keys():
                self._missing[at] = missing
            left_out = len(attached) < len(_full_media(item))
        else:
            left_out = len(visible) < len(_full_media(item))
        parts = TextPart(item.text + UNSEEN if left_out else item.text), *attached
        self.rendered.append(RenderedItem(item, parts, len(self._parts)))
        self._parts.extend(parts)

    def _visible_media(self, item: VisibleBlock) -> tuple[AttachedMedia, ...]:
        return tuple(media for media in _full_media(item) if can_see(self._traits, media.mime))

    def _forget_from(self, index: int) -> None:
        self._missing = {at: missing for at, missing in self._missing.items() if at < index}
        if index < len(self.rendered):
            del self._parts[self.rendered[index].start :]
            del self.rendered[index:]
            self._media = MediaBudget([part for part in self._parts if isinstance(part, MediaPart)])


def _full_media(item: VisibleBlock) -> tuple[AttachedMedia, ...]:
    return block_media(item.block) if item.form is Form.FULL else ()
