"""Which blocks of a conversation the model sees, and which of them whole."""

from collections.abc import Sequence

from chat_proc.timeline.block_text import MAX_PROMPT_CHARS, MAX_TEXT_CHARS, block_source, shorten
from everturn.model.block_bodies import PromptBody, SignalBody, ToolCallBody
from everturn.model.blocks import Block, BlockType

_HIDDEN = frozenset(
    {
        BlockType.STAGE_GATE,
        BlockType.ROUND_START,
        BlockType.PLAN_ACK,
        BlockType.HIDE,
        BlockType.CHECKOUT,
        BlockType.EXIT,
    }
)
"""What only clients and the runtime need. Plan marks are hidden because the snapshot after them says the same."""


def project_blocks(blocks: Sequence[Block]) -> list[Block]:
    """The visible blocks, in order. Appending blocks only ever appends to the projection."""
    return [block for block in blocks if block.type not in _HIDDEN]


def is_shown_whole(block: Block) -> bool:
    """Whether the prompt holds all of the block's text, so that reading it again would only repeat it."""
    if block.type in _HIDDEN:
        return False
    if isinstance(block.body, ToolCallBody):
        return shorten(block.body.params) == block.body.params
    cap = MAX_PROMPT_CHARS if isinstance(block.body, PromptBody | SignalBody) else MAX_TEXT_CHARS
    return len(block_source(block)) <= cap
