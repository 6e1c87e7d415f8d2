"""Which blocks show what a name means: its own, or results of reads that showed nothing else. Pure."""

from collections.abc import Container, Sequence

from chat_proc.timeline.plans import latest_plans
from chat_proc.tools.context.seen import shown_texts
from chat_proc.tools.context.spelling import Named
from everturn.model import refs
from everturn.model.blocks import Block, BlockType


def find_refs(named: Named, blocks: Sequence[Block]) -> set[str]:
    """The refs of the blocks that show just this."""
    reads = {block.ref for block in blocks if {text.ref for text in shown_texts(block)} == {named.shown}}
    if named.conversation_id is not None:
        return reads
    match named.ref:
        case refs.CompletionRef(turn=turn, n=None):
            answers = [block.ref for block in blocks if block.turn_id == turn and block.type is BlockType.COMPLETION]
            return reads | set(answers[-1:])
        case refs.PlanLatestRef(plan=plan):
            return reads | {each.snapshot_ref for each in latest_plans(blocks) if each.plan_id == plan}
        case _:
            return reads | {str(named.ref)}


def find_shared(named: Named, blocks: Sequence[Block], visible: Container[str]) -> str | None:
    """The ref of the newest visible result that shows this together with something else."""
    for block in reversed(blocks):
        if block.ref in visible and any(text.ref == named.shown for text in shown_texts(block)):
            return block.ref
    return None
