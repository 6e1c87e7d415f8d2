"""Which blocks of a conversation the model sees."""

from collections.abc import Sequence

from everturn.model.blocks import Block, BlockType

_HIDDEN = frozenset({BlockType.STAGE_GATE, BlockType.ROUND_START, BlockType.PLAN_ACK, BlockType.EXIT})
"""What only clients and the runtime need. Plan marks are hidden because the snapshot after them says the same."""


def project_blocks(blocks: Sequence[Block]) -> list[Block]:
    """The visible blocks, in order. Appending blocks only ever appends to the projection."""
    return [block for block in blocks if block.type not in _HIDDEN]
