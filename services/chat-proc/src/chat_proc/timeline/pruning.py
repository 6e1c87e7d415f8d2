"""TTL pruning: when the provider's cache is cold anyway, older turns are shortened. Decided once, when a turn opens.

The decision becomes a block, so that the view needs no clock and is the same for every later worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from chat_proc.timeline.view import BreakReason, TimelineView
from everturn.core.refs import round_ref
from everturn.timeline.blocks import GENESIS_HASH, Block, BlockDraft, BlockType, SystemMessageBody, chain_blocks


@dataclass(frozen=True, slots=True)
class PrunePolicy:
    """When to prune and what to keep. `ttl_s` is how long the provider caches a prompt; 0 disables pruning.

    `recent_turns` and `intact_turns` count the turns before the one that opens; the intact ones are recent too.
    """

    ttl_s: float = 300.0
    margin_s: float = 10.0
    """A request sent this shortly before the cache expires may miss it."""
    recent_turns: int = 6
    intact_turns: int = 1


def try_draft_prune(policy: PrunePolicy, blocks: Sequence[Block], opening: Sequence[BlockDraft]) -> BlockDraft | None:
    """The notice to write after the header of a turn, the first block of `opening`; `blocks` are all earlier ones.

    None while the cache is warm, or if the notice would not change what is shown.
    """
    if not blocks or not opening or not policy.ttl_s:
        return None
    header = opening[0]
    if _seconds_between(blocks[-1].ts, header.ts) < policy.ttl_s - policy.margin_s:
        return None
    notice = _draft_notice(policy, blocks, header)
    return notice if _changes_something(blocks, (header, notice)) else None


def _draft_notice(policy: PrunePolicy, blocks: Sequence[Block], header: BlockDraft) -> BlockDraft:
    starts: dict[str, int] = {}
    for block in blocks:
        starts.setdefault(block.turn_id, block.seq)
    firsts = [*starts.values(), blocks[-1].seq + 1]
    recent_from = firsts[max(0, len(firsts) - 1 - policy.recent_turns)]
    intact_from = firsts[max(0, len(firsts) - 1 - policy.intact_turns)]
    short = sum(first < recent_from for first in starts.values())
    light = sum(recent_from <= first < intact_from for first in starts.values())
    body = SystemMessageBody(
        kind="cache_ttl_pruned",
        text=_build_text(short, light),
        recent_from_seq=recent_from,
        intact_from_seq=intact_from,
    )
    ref = round_ref(header.turn_id, 0, "pruned")
    return BlockDraft(header.turn_id, 0, BlockType.SYSTEM_MESSAGE, ref, body, header.ts)


def _build_text(short: int, light: int) -> str:
    shown = [f"{short} of the turns above as their working summary, or as one row for each ref"] if short else []
    shown += [f"{light} after them without their bulky results"] if light else []
    return (
        f"The conversation paused, so earlier turns are shown shortened: {', and '.join(shown)}. Nothing is lost: "
        'react.read with a ref shows its text again, and "ar:<turn>.react.turn.index" lists all refs of a turn.'
    )


def _changes_something(blocks: Sequence[Block], drafts: Sequence[BlockDraft]) -> bool:
    view = TimelineView(blocks)
    view.extend(chain_blocks(drafts, next_seq=blocks[-1].seq + 1, last_hash=GENESIS_HASH))
    return any(each.reason is BreakReason.PRUNE for each in view.breaks)


def _seconds_between(before: str, after: str) -> float:
    return (datetime.fromisoformat(after) - datetime.fromisoformat(before)).total_seconds()
