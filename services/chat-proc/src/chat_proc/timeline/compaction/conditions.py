"""The conditions a summary must meet before it may replace its range, and how an oversized summary is shortened. Failed
conditions are named."""

from collections.abc import Iterator
from dataclasses import dataclass

from chat_proc.timeline.compaction.cut import HARD_STEPS, Snapshot, choose_cut
from chat_proc.timeline.compaction.sections import Section, drop_unknown, parse_sections
from chat_proc.timeline.compaction.summary import (
    ANCHOR,
    ASKED,
    CHAPTER,
    MAX_ANCHORS,
    Summary,
    build_summary,
    carry_plans,
    draft_summary,
    is_intent,
)
from chat_proc.timeline.present import latest_plans
from everturn.timeline.blocks import AnchorBody, BlockDraft, BlockType, KeptText, RangeSummaryBody

SHARES = (1.0, 0.5, 0.25, 0.1, 0.0)
"""Shares of the room for a summary: it shrinks if a request would otherwise not fit."""


def find_failures(before: Snapshot, summary: Summary, after: Snapshot) -> tuple[str, ...]:
    """The failed conditions, as text for the log; empty if the summary may be used."""
    return tuple(
        name
        for name, holds in (
            ("no token is saved", after.tokens < before.tokens),
            ("it has no text", bool(summary.text.strip())),
            ("it names a ref that was never shown", drop_unknown(summary.text, before.known) == summary.text),
            ("a request is lost", not set(_lost_intents(summary))),
            ("an anchor is lost", not set(_lost_anchors(summary))),
            ("a preference is lost", _keeps_preferences(summary)),
            ("a call and its result are separated", not _is_parted(before, summary)),
            ("a plan is lost", _keeps_plans(before, summary, after)),
        )
        if not holds
    )


def _lost_intents(summary: Summary) -> Iterator[str]:
    refs = {item.ref for item in summary.kept}
    yield from (block.ref for block in summary.cut.blocks if is_intent(block) and block.ref not in refs)
    if not any(item.kind == CHAPTER and _is_previous(summary, item.ref) for item in summary.kept):
        yield from (item.ref for item in _previous_kept(summary) if item.kind in ASKED and item.ref not in refs)


def _lost_anchors(summary: Summary) -> Iterator[str]:
    refs = [item.ref for item in _previous_kept(summary) if item.kind == ANCHOR]
    refs += [block.ref for block in summary.cut.blocks if isinstance(block.body, AnchorBody)]
    kept = {item.ref for item in summary.kept}
    yield from (ref for ref in refs[-MAX_ANCHORS:] if ref not in kept)


def _keeps_preferences(summary: Summary) -> bool:
    """Old preferences may be outnumbered, but the section must not vanish."""
    previous = summary.cut.previous
    if previous is None or not isinstance(previous.body, RangeSummaryBody):
        return True
    had = parse_sections(previous.body.text).get(Section.PREFERENCES)
    return not had or bool(parse_sections(summary.text).get(Section.PREFERENCES)) or not summary.text.strip()


def _is_parted(before: Snapshot, summary: Summary) -> bool:
    cut = summary.cut
    sides: dict[str, set[bool]] = {}
    for block in before.blocks:
        if block.call_id and block.type in (BlockType.TOOL_CALL, BlockType.TOOL_RESULT):
            sides.setdefault(f"{block.turn_id} {block.call_id}", set()).add(cut.first_seq <= block.seq <= cut.last_seq)
    return any(len(inside) > 1 for inside in sides.values())


def _keeps_plans(before: Snapshot, summary: Summary, after: Snapshot) -> bool:
    """Whether a worker that loads no blocks of the range finds the same plans as before."""
    if summary.cut.scope == "turn":
        return True
    carried = {plan.plan_id for plan in carry_plans(before, summary.cut.last_seq)}
    loaded = latest_plans(block for block in after.blocks if block.seq > summary.cut.last_seq)
    return carried <= {plan.plan_id for plan in loaded}


def _previous_kept(summary: Summary) -> tuple[KeptText, ...]:
    previous = summary.cut.previous
    return previous.body.kept if previous and isinstance(previous.body, RangeSummaryBody) else ()


def _is_previous(summary: Summary, ref: str) -> bool:
    return summary.cut.previous is not None and summary.cut.previous.ref == ref


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A conversation with the summaries made so far. `drafts` are their blocks, in order."""

    snapshot: Snapshot
    drafts: tuple[BlockDraft, ...] = ()

    @property
    def fits(self) -> bool:
        return self.snapshot.tokens <= self.snapshot.limits.hard


def shrink_by_rules(snapshot: Snapshot) -> Shrunk:
    """Try ever shorter summaries; returns the first with which a request fits, or the shortest."""
    tried: list[Shrunk] = []
    for share in SHARES:
        shrunk = Shrunk(snapshot)
        for step in HARD_STEPS:
            if (cut := choose_cut(shrunk.snapshot, step)) is not None:
                shrunk = cover(shrunk, build_summary(shrunk.snapshot, cut, share=share))[0] or shrunk
        tried.append(shrunk)
        if shrunk.fits:
            break
    return min(tried, key=lambda shrunk: shrunk.snapshot.tokens)


def cover(shrunk: Shrunk, summary: Summary) -> tuple[Shrunk | None, tuple[str, ...]]:
    """Add one summary; returns None and the failed conditions if it may not be used."""
    drafts = draft_summary(shrunk.snapshot, summary)
    after = shrunk.snapshot.plus(drafts)
    failures = find_failures(shrunk.snapshot, summary, after)
    return (None if failures else Shrunk(after, shrunk.drafts + drafts)), failures
