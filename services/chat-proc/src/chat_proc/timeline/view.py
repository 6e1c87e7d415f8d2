"""What the model sees of a conversation: a fold over its blocks alone, one visible item after another.

Turns don't interleave, because at most one of a conversation runs: so a block that is appended changes nothing that
was visible before, unless it says so itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from chat_proc.timeline.files import block_media
from chat_proc.timeline.visibility import BreakReason, Visibility, is_never_shown
from everturn.model.blocks import Block
from everturn.model.ids import TurnId
from everturn.model.llm.tokens import CharsPerToken
from everturn.timeline.rendering.forms import Form, render_card, render_replaced, render_row, try_light
from everturn.timeline.rendering.rebuilding import render_full


@dataclass(frozen=True, slots=True)
class Break:
    """Block `seq` changed what was visible: the items before `index` are as they were."""

    reason: BreakReason
    seq: int
    index: int


@dataclass(frozen=True, slots=True)
class VisibleBlock:
    """One item of the view. `text` is all that the model reads of the block."""

    block: Block
    form: Form
    text: str


class TimelineView:
    """Grows with its timeline. `items` is what is visible now, `breaks` every change of what was visible before."""

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self.items: list[VisibleBlock] = []
        self.breaks: list[Break] = []
        self.chars = 0
        """Of all items."""
        self.texts_built = 0
        """Texts rendered so far: a block counts once for each form it was shown in."""
        self.turn_id: TurnId = TurnId("")
        """The newest turn."""
        self.turn_at = 0
        """The index of its first item."""
        self._media_at: int | None = None
        self._blocks: list[Block] = []
        self._visibility = Visibility()
        self._shown: dict[int, VisibleBlock] = {}
        self.extend(blocks)

    @property
    def blocks(self) -> Sequence[Block]:
        """All blocks taken so far."""
        return self._blocks

    @property
    def visibility(self) -> Visibility:
        """What was learnt of the blocks; only the view teaches it."""
        return self._visibility

    def extend(self, blocks: Iterable[Block]) -> None:
        """Take the next blocks. Costs as much as these, unless one of them changes what was visible."""
        taken = tuple(blocks)
        turn_id, media_at = self.turn_id, self._media_at
        self._blocks.extend(taken)
        reasons = [(reason, block.seq) for block in taken if (reason := self._visibility.learn(block)) is not None]
        if reasons:
            self._fold_again(reasons)
        else:
            for block in taken:
                if not is_never_shown(block):
                    self._add(block, Form.FULL, {})
        if media_at is not None and self.turn_id != turn_id:
            seq = next(block.seq for block in taken if block.turn_id != turn_id)
            self.breaks.append(Break(BreakReason.MEDIA, seq, min(media_at, self.turn_at)))

    def tokens(self, ratio: CharsPerToken) -> int:
        """Estimated tokens of all items; images and PDFs are not among them."""
        return ratio.tokens_for(self.chars)

    def form_of(self, block: Block) -> Form:
        """How a block is shown now."""
        item = self._shown.get(block.seq)
        return item.form if item else Form.GONE

    def _fold_again(self, reasons: Sequence[tuple[BreakReason, int]]) -> None:
        """Choose every form anew; a text is rendered anew only where the form is another one."""
        before, kept = self.items, self._shown
        self.items, self._shown = [], {}
        self.chars = self.turn_at = 0
        self.turn_id, self._media_at = TurnId(""), None
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
        """A summary stands where the blocks were that it covers, so it may be there already."""
        if block.seq in self._shown:
            return
        item = self._try_reuse(block, form, kept.get(block.seq)) or self._build_item(block, form)
        if block.turn_id != self.turn_id and block is not self._visibility.memory:
            self.turn_id, self.turn_at, self._media_at = block.turn_id, len(self.items), None
        if self._media_at is None and item.form is Form.FULL and block_media(block):
            self._media_at = len(self.items)
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
                raise ValueError("A block that is gone has no text.")
            case _:
                assert_never(form)


def _count_same(before: Sequence[VisibleBlock], after: Sequence[VisibleBlock]) -> int:
    """How many items both begin with."""
    pairs = zip(before, after, strict=False)
    return next((n for n, (old, new) in enumerate(pairs) if old is not new), min(len(before), len(after)))
