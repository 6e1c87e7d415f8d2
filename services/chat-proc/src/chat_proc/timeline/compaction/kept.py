"""What a summary keeps word for word: who asked for what in each turn, and the anchors the model left for later.

A summary names its turns one by one up to a number; the earlier ones are found through the summary before it, whose ref
is kept as a chapter. So every turn of a long conversation is at most two reads away, and what is kept stays bounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chat_proc.timeline.compaction.cut import Cut
from chat_proc.timeline.compaction.sections import TokensOf
from chat_proc.timeline.compaction.shown_refs import cut_line, cut_text
from chat_proc.timeline.files import block_artifacts
from everturn.model.block_bodies import AnchorBody, EventBody, KeptText, PromptBody, RangeSummaryBody, SignalBody
from everturn.model.blocks import Block, BlockType
from everturn.model.ids import TurnId

MAX_ANCHORS = 32
"""The newest ones, as in the reference system; older ones live on in the text and in their turns."""
MAX_CHAPTERS = 64
SHOWN_FILES = 3
"""Attachments named with a message."""
CHAPTER = BlockType.RANGE_SUMMARY.value
ANCHOR = BlockType.ANCHOR.value
_ASKED = frozenset({BlockType.USER_PROMPT, BlockType.USER_FOLLOWUP, BlockType.USER_STEER, BlockType.EXTERNAL_EVENT})
ASKED = frozenset(kind.value for kind in _ASKED)
"""The kinds that say what somebody wanted; none of them is ever lost."""


@dataclass(frozen=True, slots=True)
class KeptSizes:
    """Characters that may be kept of one text."""

    asked: int
    anchor: int


HISTORY_SIZES = (
    KeptSizes(240, 1_000),
    KeptSizes(160, 600),
    KeptSizes(120, 300),
    KeptSizes(80, 160),
    KeptSizes(40, 80),
    KeptSizes(0, 40),
    KeptSizes(0, 0),
)
TURN_SIZES = (
    KeptSizes(8_000, 1_000),
    KeptSizes(4_000, 600),
    KeptSizes(2_000, 300),
    KeptSizes(1_000, 160),
    KeptSizes(400, 160),
    *HISTORY_SIZES,
)
"""Tried one after another. The current turn's own request is kept longer: the work is still about it."""


def is_intent(block: Block) -> bool:
    """Whether the block says what somebody wanted."""
    return block.type in _ASKED


def gather_kept(cut: Cut, turn_id: TurnId, *, listed_turns: int) -> tuple[KeptText, ...]:
    """Chapters, then what was asked, then anchors; each oldest first. `turn_id` is that of the new summary."""
    before = cut.previous.body.kept if cut.previous and isinstance(cut.previous.body, RangeSummaryBody) else ()
    chapters = [item for item in before if item.kind == CHAPTER]
    listed = [item for item in before if item.kind in ASKED]
    fresh = [_keep_asked(block) for block in cut.blocks if is_intent(block)]
    anchors = [item for item in before if item.kind == ANCHOR]
    anchors += [_keep_anchor(block, block.body) for block in cut.blocks if isinstance(block.body, AnchorBody)]
    # A summary of the same turn would have the ref of the new one.
    can_close = cut.scope == "history" and cut.previous is not None and cut.previous.turn_id != turn_id
    if can_close and cut.previous is not None and _count_prompts([*listed, *fresh]) > listed_turns:
        chapters = _add_chapter(chapters, cut.previous, listed)
        listed = []
    return (*chapters, *_in_order([*listed, *fresh], cut), *anchors[-MAX_ANCHORS:])


def fit_kept(
    kept: Sequence[KeptText], sizes: Sequence[KeptSizes], max_tokens: int, tokens_of: TokensOf
) -> tuple[KeptText, ...]:
    """The same, each text cut as far as `max_tokens` asks for; the refs stay in any case."""
    shortened = tuple(kept)
    for size in sizes:
        shortened = tuple(_shorten(item, size) for item in kept)
        if sum(tokens_of(f"- [{item.kind} {item.ref}] {item.text}\n") for item in shortened) <= max_tokens:
            break
    return shortened


def _keep_asked(block: Block) -> KeptText:
    text = block.body.text if isinstance(block.body, PromptBody | SignalBody | EventBody) else ""
    if isinstance(block.body, EventBody):
        text = f"{block.body.kind}: {text}"
    refs = [artifact.ref for artifact in block_artifacts(block)]
    attached = f" (attached: {', '.join(refs[:SHOWN_FILES])})" if refs else ""
    return KeptText(ref=block.ref, kind=block.type.value, text=(text + attached).strip())


def _keep_anchor(block: Block, body: AnchorBody) -> KeptText:
    missing = "".join(f"[{tag}] " for tag in body.tags if f"[{tag}]" not in body.text)
    return KeptText(ref=block.ref, kind=ANCHOR, text=missing + body.text)


def _add_chapter(chapters: Sequence[KeptText], previous: Block, listed: Sequence[KeptText]) -> list[KeptText]:
    prompts = [item for item in listed if item.kind == BlockType.USER_PROMPT.value]
    first, last = (cut_line(prompts[n].text, 60) for n in (0, -1)) if prompts else ("", "")
    chapter = KeptText(ref=previous.ref, kind=CHAPTER, text=f"{len(prompts)} turns, from “{first}” to “{last}”")
    if len(chapters) < MAX_CHAPTERS:
        return [*chapters, chapter]
    return [chapter.model_copy(update={"text": f"{chapter.text}, and {len(chapters)} earlier chapters"})]


def _in_order(listed: Sequence[KeptText], cut: Cut) -> list[KeptText]:
    """A checkpoint that reaches further back puts the prompt before what was said later."""
    prompts = [item for item in listed if item.kind == BlockType.USER_PROMPT.value]
    return list(listed) if cut.scope == "history" else prompts + [item for item in listed if item not in prompts]


def _count_prompts(listed: Sequence[KeptText]) -> int:
    return sum(1 for item in listed if item.kind == BlockType.USER_PROMPT.value)


def _shorten(item: KeptText, size: KeptSizes) -> KeptText:
    if item.kind == CHAPTER:
        return item
    text = cut_text(item.text, size.anchor) if item.kind == ANCHOR else _cut_asked(item.text, size.asked)
    return item if text == item.text else item.model_copy(update={"text": text})


def _cut_asked(text: str, max_chars: int) -> str:
    return cut_text(text, max_chars) if max_chars > HISTORY_SIZES[0].asked else cut_line(text, max_chars)
