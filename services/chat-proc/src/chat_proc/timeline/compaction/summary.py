"""Builds a summary: its text from a model's reply or from rules, the texts it keeps of its range, and its blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from chat_proc.timeline.artifacts import block_artifacts
from chat_proc.timeline.compaction.cut import Cut, Snapshot
from chat_proc.timeline.compaction.sections import (
    Section,
    Sections,
    TokensOf,
    cut_line,
    cut_text,
    drop_unknown,
    fit_sections,
    merge_sections,
    parse_sections,
)
from chat_proc.timeline.compaction.turn_facts import fold_anchors, list_calls, summarize_rounds, summarize_turns
from chat_proc.timeline.present import latest_plans
from everturn.core.ids import TurnId
from everturn.core.refs import range_summary_ref, round_ref
from everturn.timeline.blocks import (
    AnchorBody,
    Block,
    BlockDraft,
    BlockType,
    Body,
    EventBody,
    KeptText,
    PlanBody,
    PlanHistoryBody,
    PromptBody,
    RangeSummaryBody,
    SignalBody,
)
from everturn.timeline.plans import PlanSnapshot, PlanStatus

MAX_ANCHORS = 32
"""The newest ones; older ones remain in the text and in their turns."""
MAX_CHAPTERS = 64
SHOWN_FILES = 3
"""Attachments named with a message."""
CHAPTER = BlockType.RANGE_SUMMARY.value
ANCHOR = BlockType.ANCHOR.value
_ASKED = frozenset({BlockType.USER_PROMPT, BlockType.USER_FOLLOWUP, BlockType.USER_STEER, BlockType.EXTERNAL_EVENT})
ASKED = frozenset(kind.value for kind in _ASKED)
"""The kinds that contain a request; none of them is ever lost."""

MIN_SECTIONS = 2
"""A reply with fewer headings is not a summary, but a refusal or small talk."""
MAX_ENDED_PLANS = 12
"""Closed, superseded and complete plans that are carried over, in addition to all open ones."""
LEDGER_SHARE = 2
"""A checkpoint's text can be this many times as long as a history summary's, because it contains the ledger of
calls."""


@dataclass(frozen=True, slots=True)
class KeptSizes:
    """Maximum characters kept of one text."""

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
"""Tried in order. The current turn's request gets more room, because it is still being worked on."""


def is_intent(block: Block) -> bool:
    """Whether the block contains a request."""
    return block.type in _ASKED


def gather_kept(cut: Cut, turn_id: TurnId, *, listed_turns: int) -> tuple[KeptText, ...]:
    """Chapters, then requests, then anchors; each oldest first. `turn_id` is that of the new summary.

    A summary lists its turns individually up to a number; earlier ones are found through the previous summary, whose
    ref is kept as a chapter. So every turn of a long conversation is at most two reads away, and the kept texts stay
    bounded.
    """
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
    """The same, with texts cut until they fit `max_tokens`; the refs remain in any case."""
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
    """A checkpoint that reaches further back puts the prompt before later requests."""
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


@dataclass(frozen=True, slots=True)
class Summary:
    """The content that will replace the blocks of `cut`."""

    cut: Cut
    text: str
    kept: tuple[KeptText, ...]
    by: Literal["model", "rules"]


def build_summary(snapshot: Snapshot, cut: Cut, *, share: float = 1.0) -> Summary:
    """Build a summary by rules only. `share` is the part of the limits' room to use; it is lowered as a last resort."""
    new_sections = (
        summarize_turns(cut.blocks) if cut.scope == "history" else summarize_rounds(cut.blocks, snapshot.hidden)
    )
    return _finish(snapshot, cut, merge_sections(_carried(cut, new_sections), new_sections), "rules", share)


def try_read_summary(snapshot: Snapshot, cut: Cut, reply: str) -> Summary | None:
    """Read a model's reply; None if it is not a summary. Lines with refs that the model was not shown are dropped.

    Preferences and the ledger of calls are never left to the model alone.
    """
    new_sections = parse_sections(drop_unknown(reply, snapshot.known))
    if len([section for section in new_sections if section is not Section.CALLS]) < MIN_SECTIONS:
        return None
    before = _previous_sections(cut)
    certain = dict(fold_anchors(cut.blocks))
    kept_lines = {section: before.get(section, ()) for section in (Section.PREFERENCES, Section.CALLS)}
    if cut.scope == "turn":
        certain[Section.CALLS] = list_calls(cut.blocks, snapshot.hidden)
    without_calls = {section: lines for section, lines in new_sections.items() if section is not Section.CALLS}
    sections = merge_sections(merge_sections(kept_lines, without_calls), certain)
    return _finish(snapshot, cut, sections, "model", 1.0)


def draft_summary(snapshot: Snapshot, summary: Summary) -> tuple[BlockDraft, ...]:
    """The summary with its tokens before and after, followed by the plans whose blocks are in the range."""
    before = snapshot.tokens
    drafts = (_draft_summary(snapshot, summary, before, before), *_draft_plans(snapshot, summary.cut))
    after = snapshot.plus(drafts).tokens
    return (_draft_summary(snapshot, summary, before, after), *drafts[1:])


def restamp(snapshot: Snapshot, drafts: Sequence[BlockDraft]) -> tuple[BlockDraft, ...]:
    """Update blocks that were made from an earlier snapshot, so that they can be appended now, with current tokens."""
    after = snapshot.plus(drafts).tokens if drafts else snapshot.tokens
    return tuple(
        replace(draft, round=snapshot.round, ts=snapshot.now, body=_update_tokens(draft.body, snapshot.tokens, after))
        for draft in drafts
    )


def carry_plans(snapshot: Snapshot, last_seq: int) -> tuple[PlanSnapshot, ...]:
    """The newest snapshots of plans without a block after `last_seq`: the open ones, and the newest others."""
    later = {
        block.body.plan.plan_id
        for block in snapshot.blocks
        if block.seq > last_seq and isinstance(block.body, PlanBody)
    }
    plans = [plan for plan in latest_plans(snapshot.blocks) if plan.plan_id not in later]
    ended = [plan for plan in plans if plan.status is not PlanStatus.OPEN]
    dropped = {plan.plan_id for plan in ended[:-MAX_ENDED_PLANS]}
    return tuple(plan for plan in plans if plan.plan_id not in dropped)


def _update_tokens(body: Body, before: int, after: int) -> Body:
    if not isinstance(body, RangeSummaryBody):
        return body
    return body.model_copy(update={"before_tokens": before, "after_tokens": after})


def _finish(snapshot: Snapshot, cut: Cut, sections: Sections, by: Literal["model", "rules"], share: float) -> Summary:
    limits = snapshot.limits
    text_tokens = limits.text_tokens * (1 if cut.scope == "history" else LEDGER_SHARE)
    text = fit_sections(sections, int(text_tokens * share), snapshot.tokens_of, snapshot.known)
    sizes = HISTORY_SIZES if cut.scope == "history" else TURN_SIZES
    kept = gather_kept(cut, snapshot.turn_id, listed_turns=limits.listed_turns)
    kept_tokens = limits.kept_tokens if cut.scope == "history" else limits.target // 3
    return Summary(cut, text, fit_kept(kept, sizes, int(kept_tokens * share), snapshot.tokens_of), by)


def _previous_sections(cut: Cut) -> Sections:
    previous = cut.previous
    return parse_sections(previous.body.text) if previous and isinstance(previous.body, RangeSummaryBody) else {}


def _carried(cut: Cut, new_sections: Sections) -> Sections:
    """The sections of the previous summary, without those that newer blocks replace."""
    outdated = {Section.NEXT, Section.ACTIVE} if cut.scope == "history" else {Section.NEXT}
    return {
        section: lines
        for section, lines in _previous_sections(cut).items()
        if section not in outdated or not new_sections.get(section)
    }


def _draft_summary(snapshot: Snapshot, summary: Summary, before: int, after: int) -> BlockDraft:
    cut = summary.cut
    body = RangeSummaryBody(
        scope=cut.scope,
        first_seq=cut.first_seq,
        last_seq=cut.last_seq,
        turn_ids=_turn_ids(summary),
        text=summary.text,
        kept=summary.kept,
        before_tokens=before,
        after_tokens=after,
        by=summary.by,
    )
    if cut.scope == "history":
        return _draft(snapshot, BlockType.RANGE_SUMMARY, range_summary_ref(snapshot.turn_id), body)
    made = sum(
        1
        for block in snapshot.blocks
        if block.turn_id == snapshot.turn_id and isinstance(block.body, RangeSummaryBody) and block.body.scope == "turn"
    )
    ref = round_ref(snapshot.turn_id, snapshot.round, f"checkpoint.{made + 1}")
    return _draft(snapshot, BlockType.RANGE_SUMMARY, ref, body)


def _turn_ids(summary: Summary) -> tuple[str, ...]:
    """The covered turns that no chapter lists."""
    previous = summary.cut.previous
    before = previous.body.turn_ids if previous and isinstance(previous.body, RangeSummaryBody) else ()
    if previous is not None and any(item.ref == previous.ref for item in summary.kept):
        before = ()
    return tuple(dict.fromkeys((*before, *(block.turn_id for block in summary.cut.blocks))))


def _draft_plans(snapshot: Snapshot, cut: Cut) -> Sequence[BlockDraft]:
    """The plans to carry over. A checkpoint needs none: the blocks of its turn are loaded as long as the turn runs."""
    plans = carry_plans(snapshot, cut.last_seq) if cut.scope == "history" else ()
    if not plans:
        return ()
    made = sum(
        1 for block in snapshot.blocks if block.turn_id == snapshot.turn_id and block.type is BlockType.PLAN_HISTORY
    )
    ref = round_ref(snapshot.turn_id, snapshot.round, f"plans.{made + 1}")
    return (_draft(snapshot, BlockType.PLAN_HISTORY, ref, PlanHistoryBody(plans=plans)),)


def _draft(snapshot: Snapshot, kind: BlockType, ref: str, body: RangeSummaryBody | PlanHistoryBody) -> BlockDraft:
    return BlockDraft(snapshot.turn_id, snapshot.round, kind, ref, body, snapshot.now)
