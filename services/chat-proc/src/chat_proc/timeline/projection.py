"""Whether the model sees all of a block's text in the block itself."""

from chat_proc.timeline.block_text import MAX_PROMPT_CHARS, MAX_TEXT_CHARS, block_source, shorten
from chat_proc.timeline.visibility import is_never_shown
from everturn.model.block_bodies import PromptBody, SignalBody, ToolCallBody
from everturn.model.blocks import Block


def is_shown_whole(block: Block) -> bool:
    """Whether its full form holds all of its text, so that reading it again would only repeat it."""
    if is_never_shown(block):
        return False
    if isinstance(block.body, ToolCallBody):
        return shorten(block.body.params) == block.body.params
    cap = MAX_PROMPT_CHARS if isinstance(block.body, PromptBody | SignalBody) else MAX_TEXT_CHARS
    return len(block_source(block)) <= cap
