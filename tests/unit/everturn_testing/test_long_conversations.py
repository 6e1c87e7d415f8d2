"""Talks are timelines as the runtime writes them."""

from everturn.core.refs import parse_ref
from everturn.timeline.blocks import BlockType
from everturn.timeline.progress import GenerateRound, fold_progress
from everturn_testing.long_conversations import STEPS, play_conversation
from everturn_testing.timeline import first_broken_link


def test_a_talk_of_every_step_is_a_chain_that_ends_at_a_round_boundary() -> None:
    timeline = play_conversation([*STEPS, *STEPS[1:]])

    assert first_broken_link(timeline.blocks) is None
    assert [str(parse_ref(block.ref)) for block in timeline.blocks] == [block.ref for block in timeline.blocks]
    last_turn = [block for block in timeline.blocks if block.turn_id == timeline.turn_id]
    assert isinstance(fold_progress(last_turn).next_step(), GenerateRound)
    missing = {BlockType.ANCHOR, BlockType.PLAN, BlockType.HIDE, BlockType.EXIT, BlockType.WORKING_SUMMARY}
    assert missing <= {block.type for block in timeline.blocks}
