"""The order in which a request is made to fit: older turns, older rounds, then what is hard to give up."""

from collections.abc import Sequence
from enum import Enum

from chat_proc.timeline.compaction.cut import Cut, Reach, choose_history, choose_rounds
from chat_proc.timeline.compaction.snapshot import Snapshot

WORTH_PERCENT = 5
"""Of the whole: what a summary beside the turn has to save at least, before its own length."""


class Step(Enum):
    """What is covered next."""

    HISTORY = "history"
    ROUNDS = "rounds"
    PROMPT = "prompt"
    EVERYTHING = "everything"


SOFT_STEPS = (Step.HISTORY, Step.ROUNDS)
HARD_STEPS = tuple(Step)
LAST_RESORTS = (Step.PROMPT, Step.EVERYTHING)
"""Taken only where a request would otherwise not be sent at all."""
_REACH = {Step.ROUNDS: Reach.ROUNDS, Step.PROMPT: Reach.PROMPT, Step.EVERYTHING: Reach.ALL}


def choose_cut(snapshot: Snapshot, step: Step) -> Cut | None:
    """What the step is to cover; None when it has nothing to do, or the request is short enough without it."""
    limits = snapshot.limits
    if snapshot.tokens <= (limits.hard if step in LAST_RESORTS else limits.target):
        return None
    excess = snapshot.tokens - limits.target + limits.text_tokens + limits.kept_tokens // 2
    if step is Step.HISTORY:
        return choose_history(snapshot.blocks, snapshot.shown, snapshot.turn_id, excess_tokens=excess)
    reach = _REACH[step]
    return choose_rounds(snapshot.blocks, snapshot.shown, snapshot.turn_id, reach, excess_tokens=excess)


def is_worth(snapshot: Snapshot, cut: Cut) -> bool:
    """Whether the cut saves enough to be made beside the turn."""
    return cut.saved_tokens * 100 >= snapshot.limits.max_tokens * WORTH_PERCENT


def find_step(snapshot: Snapshot, steps: Sequence[Step], *, last_resort: bool = False) -> Step | None:
    """The first step that has something to do, and is worth it unless it is the `last_resort`; None when none has."""
    for step in steps:
        cut = choose_cut(snapshot, step)
        if cut is not None and (last_resort or is_worth(snapshot, cut)):
            return step
    return None
