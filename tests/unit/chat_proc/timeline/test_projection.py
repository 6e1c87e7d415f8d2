"""Whether a block's full form holds all of its text."""

from chat_proc.timeline.block_text import MAX_PROMPT_CHARS
from chat_proc.timeline.projection import is_shown_whole
from everturn.testing.timelines import TimelineBuilder


def test_a_text_within_its_cap_is_shown_whole() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "x" * MAX_PROMPT_CHARS)
    timeline.start_turn("turn_2", "x" * (MAX_PROMPT_CHARS + 1))
    timeline.start_round()
    timeline.call("call_1", "demo.echo", {"text": "x" * 3_000})

    assert [is_shown_whole(block) for block in timeline.blocks] == [True, True, True, False, False, False]
