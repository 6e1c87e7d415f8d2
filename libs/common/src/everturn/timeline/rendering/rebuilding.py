"""Rebuilds the text of a part of a request from what it was made of, and believes it only if its hash says so."""

import hashlib
from collections.abc import Iterator

from everturn.model.block_bodies import RangeSummaryBody
from everturn.model.blocks import Block
from everturn.timeline.rendering.block_text import render_block
from everturn.timeline.rendering.forms import Form, render_card, render_memory, render_row, try_light

UNSEEN = "(this model can't look at the file; a program can)\n\n"
"""Follows an attachment that the model has no eyes for."""


def try_rebuild_text(block: Block, form: str, sha256: str) -> str | None:
    """What a request showed of a block; None where another version rendered it, or `react.hide` replaced it."""
    return next((text for text in _texts(block, form) if hash_text(text) == sha256), None)


def hash_text(text: str) -> str:
    """As manifests hash texts."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _texts(block: Block, form: str) -> Iterator[str]:
    match form:
        case Form.FULL:
            full = render_full(block)
            yield from (full, full + UNSEEN)
        case Form.LIGHT:
            yield try_light(block) or ""
        case Form.ROW:
            yield render_row(block)
        case Form.CARD:
            yield render_card(block)
        case _:
            return


def render_full(block: Block) -> str:
    """The whole block, also a summary."""
    return render_memory(block, block.body) if isinstance(block.body, RangeSummaryBody) else render_block(block)
