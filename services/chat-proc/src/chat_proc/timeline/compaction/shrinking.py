"""Taking one summary after another until a request fits: what rules can do, and what every summary has to pass."""

from dataclasses import dataclass

from chat_proc.timeline.compaction.conditions import find_failures
from chat_proc.timeline.compaction.memory import Memory, build_memory, draft_memory
from chat_proc.timeline.compaction.snapshot import Snapshot
from chat_proc.timeline.compaction.steps import HARD_STEPS, choose_cut
from everturn.model.blocks import BlockDraft

SHARES = (1.0, 0.5, 0.25, 0.1, 0.0)
"""Of the room for a summary: it gets less where a request would otherwise not fit."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A conversation with the summaries that were made so far. `drafts` are their blocks, in order."""

    snapshot: Snapshot
    drafts: tuple[BlockDraft, ...] = ()

    @property
    def fits(self) -> bool:
        return self.snapshot.tokens <= self.snapshot.limits.hard


def shrink_by_rules(snapshot: Snapshot) -> Shrunk:
    """The first of ever shorter summaries with which a request fits, or the shortest of all."""
    tried: list[Shrunk] = []
    for share in SHARES:
        shrunk = Shrunk(snapshot)
        for step in HARD_STEPS:
            if (cut := choose_cut(shrunk.snapshot, step)) is not None:
                shrunk = cover(shrunk, build_memory(shrunk.snapshot, cut, share=share))[0] or shrunk
        tried.append(shrunk)
        if shrunk.fits:
            break
    return min(tried, key=lambda shrunk: shrunk.snapshot.tokens)


def cover(shrunk: Shrunk, memory: Memory) -> tuple[Shrunk | None, tuple[str, ...]]:
    """With one summary more; None, and the conditions it fails, when it may not be used."""
    drafts = draft_memory(shrunk.snapshot, memory)
    after = shrunk.snapshot.plus(drafts)
    failures = find_failures(shrunk.snapshot, memory, after)
    return (None if failures else Shrunk(after, shrunk.drafts + drafts)), failures
