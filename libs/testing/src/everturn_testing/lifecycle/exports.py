"""Exports for tests: the file of a small conversation."""

from collections.abc import Sequence

from everturn.lifecycle.export_check import ExportWriter
from everturn.lifecycle.exports import BlockLine, FeedbackLine, HeaderLine
from everturn.timeline.blocks import GENESIS_HASH, Block
from everturn_testing.timeline import NOW, TimelineBuilder

CONVERSATION = "conv_01890a5d-ac96-774b-bcce-b302099a8057"


def build_export(*texts: str) -> list[bytes]:
    """The lines of a conversation with one turn for each text, and feedback on the first."""
    builder = TimelineBuilder()
    for number, text in enumerate(texts, start=1):
        builder.start_turn(f"turn_{number}", text)
        builder.answer(f"You said {text}")
    judged = FeedbackLine(turn_id="turn_1", origin="user", reaction="ok", text="", confidence=None, ts=NOW)
    return render_export(CONVERSATION, builder.blocks, judged)


def render_export(conversation_id: str, blocks: Sequence[Block], *feedback: FeedbackLine) -> list[bytes]:
    """The lines of a conversation with these blocks."""
    lines = [build_block_line(block, previous) for previous, block in _with_previous(blocks)]
    header = HeaderLine(
        conversation_id=conversation_id,
        title="A conversation",
        bundle_id=None,
        created_at=NOW,
        last_activity_at=NOW,
        blocks=len(lines),
        last_hash=lines[-1].hash if lines else GENESIS_HASH,
    )
    writer = ExportWriter()
    return [*map(writer.render, (header, *lines, *feedback)), writer.render_end()]


def build_block_line(block: Block, previous: str) -> BlockLine:
    """A block as a line of an export."""
    return BlockLine(
        seq=block.seq,
        turn_id=block.turn_id,
        round=block.round,
        type=block.type_name,
        ref=block.ref,
        call_id=block.call_id,
        body=block.body_json,
        ts=block.ts,
        ts_first=block.ts_first,
        previous=previous,
        hash=block.hash,
    )


def _with_previous(blocks: Sequence[Block]) -> list[tuple[str, Block]]:
    return list(zip([GENESIS_HASH, *(block.hash for block in blocks)], blocks, strict=False))
