"""A snapshot measures what the model sees, not what is stored."""

from collections.abc import Callable

from chat_proc.timeline.compaction.cut import Snapshot
from everturn.timeline.blocks import BlockDraft, BlockType, NoticeBody
from everturn_testing.timeline import first_broken_link

Look = Callable[..., Snapshot]


def test_the_tokens_include_the_fixed_part_of_the_request(look: Look) -> None:
    few, many = look(["call"]), look(["call", "big"])

    assert few.tokens == 400 + -(-sum(len(item.text) for item in few.shown) // 4)
    assert many.tokens > few.tokens + 2_000


def test_many_small_blocks_count_by_their_size_and_not_by_their_number(look: Look) -> None:
    assert look(["think"] * 20).tokens < look(["big"]).tokens


def test_a_hidden_block_counts_as_its_replacement(look: Look) -> None:
    snapshot = look(["big", "hide"])
    result = next(block for block in snapshot.blocks if block.type is BlockType.TOOL_RESULT)

    assert snapshot.hidden(result) == "It was noise."
    assert snapshot.hidden(snapshot.blocks[0]) is None
    assert snapshot.tokens < 1_000


def test_appended_blocks_are_chained_as_they_will_be_stored(look: Look) -> None:
    snapshot = look(["call"])
    body = NoticeBody(code="x", text="y" * 400)
    draft = BlockDraft(snapshot.turn_id, 1, BlockType.NOTICE, "ar:turn_0.round.1.notice", body, snapshot.now)

    after = snapshot.plus([draft])

    assert first_broken_link(after.blocks) is None
    assert after.tokens > snapshot.tokens + 100


def test_known_refs_are_those_of_blocks_and_texts(look: Look) -> None:
    known = look(["file"]).known

    assert "tc:turn_0.call_1.result" in known
    assert "fi:turn_0.outputs/report 1.md" in known
    assert "tc:turn_0.call_2.result" not in known
