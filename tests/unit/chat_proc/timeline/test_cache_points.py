"""Cache points: previous turn, pre-tail, tail; at most three of them on the timeline."""

from chat_proc.timeline.cache_points import choose_cache_points
from chat_proc.timeline.projection import project_blocks
from everturn.testing.timelines import TimelineBuilder


def play(rounds: int) -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "first")
    timeline.start_round()
    timeline.answer("done")
    timeline.start_turn("turn_2", "second")
    for number in range(1, rounds + 1):
        timeline.start_round()
        timeline.call(f"call_{number}", "react.read", {})
        timeline.result(f"call_{number}", "react.read", "ok")
    return timeline


def refs_of(timeline: TimelineBuilder) -> list[str]:
    points = choose_cache_points(project_blocks(timeline.blocks))
    return [block.ref for block in timeline.blocks if block.seq in points]


def test_without_blocks_there_is_no_point() -> None:
    assert choose_cache_points([]) == frozenset()


def test_before_the_first_round_the_prompt_itself_is_the_tail() -> None:
    assert refs_of(play(0)) == ["ar:turn_1.assistant.completion.1", "ar:turn_2.user.prompt"]


def test_after_one_round_there_is_no_pre_tail_yet() -> None:
    assert refs_of(play(1)) == ["ar:turn_1.assistant.completion.1", "tc:turn_2.call_1.result"]


def test_from_two_rounds_on_the_pre_tail_follows_four_rounds_behind() -> None:
    assert refs_of(play(2))[1:] == ["tc:turn_2.call_1.result", "tc:turn_2.call_2.result"]
    assert refs_of(play(7))[1:] == ["tc:turn_2.call_3.result", "tc:turn_2.call_7.result"]


def test_there_are_never_more_than_three() -> None:
    assert max(len(refs_of(play(rounds))) for rounds in range(12)) == 3
