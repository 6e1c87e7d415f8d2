"""Limits follow from one number, which the model's context bounds."""

from chat_proc.timeline.compaction.cut import ContextLimits, build_context_limits


def test_soft_hard_and_target_are_shares_of_the_whole() -> None:
    limits = ContextLimits(80_000)

    assert (limits.soft, limits.hard, limits.target) == (60_000, 76_000, 48_000)


def test_the_limit_leaves_room_for_the_reply_in_the_context() -> None:
    assert build_context_limits(80_000, context_tokens=200_000, max_output_tokens=8_000).max_tokens == 80_000
    assert build_context_limits(80_000, context_tokens=32_000, max_output_tokens=8_000).max_tokens == 24_000


def test_a_reply_as_long_as_the_context_leaves_half_of_it() -> None:
    assert build_context_limits(80_000, context_tokens=8_000, max_output_tokens=8_000).max_tokens == 4_000


def test_a_summary_has_room_for_all_its_sections() -> None:
    assert ContextLimits(80_000).text_tokens == 3_200
    assert ContextLimits(80_000).listed_turns == 40
    assert ContextLimits(1_000).listed_turns == 4
    assert ContextLimits(1).text_tokens == ContextLimits(1).kept_tokens == 1
