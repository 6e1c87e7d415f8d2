"""A text is rebuilt only where its hash agrees."""

from everturn.timeline.blocks import BlockType
from everturn.timeline.forms import UNSEEN, hash_text, render_full, render_row, try_rebuild_text
from everturn_testing.timeline import TimelineBuilder


def test_every_form_that_depends_on_the_block_alone_is_rebuilt() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "A long question. " * 100)
    block = next(block for block in timeline.blocks if block.type is BlockType.USER_PROMPT)
    full, row = render_full(block), render_row(block)

    assert try_rebuild_text(block, "full", hash_text(full)) == full
    assert try_rebuild_text(block, "full", hash_text(full + UNSEEN)) == full + UNSEEN
    assert try_rebuild_text(block, "row", hash_text(row)) == row
    assert try_rebuild_text(block, "row", hash_text(full)) is None
    assert try_rebuild_text(block, "replaced", hash_text(full)) is None
