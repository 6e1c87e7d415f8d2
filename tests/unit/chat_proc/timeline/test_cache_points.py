"""Cache points: previous turn, pre-tail, tail; at most three of them on the timeline, each on text that stays."""

from hypothesis import given
from hypothesis import strategies as st

from chat_proc.timeline.view import CachePoints, TimelineView, choose_cache_points, first_editable_seq
from everturn.timeline.blocks import BlockType, HideBody, RangeSummaryBody, SystemMessageBody
from everturn_testing.timeline import TimelineBuilder


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
    view = TimelineView(timeline.blocks)
    points = choose_cache_points(view.items, view.turn_at)
    return [view.items[at].block.ref for at in sorted(points.indexes)]


def hide(timeline: TimelineBuilder, *refs: str) -> None:
    body = HideBody(refs=refs, through_seq=len(timeline.blocks), replacement="hidden")
    timeline.add(BlockType.HIDE, f"ar:turn_2.round.{timeline.round}.hide", body)


def test_without_blocks_there_is_no_point() -> None:
    assert choose_cache_points([], 0) == CachePoints()


def test_before_the_first_round_the_prompt_itself_is_the_tail() -> None:
    assert refs_of(play(0)) == ["ar:turn_1.assistant.completion.1", "ar:turn_2.user.prompt"]


def test_after_one_round_there_is_no_pre_tail_yet() -> None:
    assert refs_of(play(1)) == ["ar:turn_1.assistant.completion.1", "tc:turn_2.call_1.result"]


def test_from_two_rounds_on_the_pre_tail_follows_four_rounds_behind() -> None:
    assert refs_of(play(2))[1:] == ["tc:turn_2.call_1.result", "tc:turn_2.call_2.result"]
    assert refs_of(play(5))[1:] == ["tc:turn_2.call_1.result", "tc:turn_2.call_5.result"]
    assert refs_of(play(7))[1:] == ["tc:turn_2.call_3.result", "tc:turn_2.call_7.result"]


def test_there_are_never_more_than_three() -> None:
    assert max(len(refs_of(play(rounds))) for rounds in range(12)) == 3


def test_the_tail_is_on_the_last_completed_round() -> None:
    timeline = play(3)
    timeline.start_round()
    timeline.say("followup", "sig_1", "and the mean")

    assert refs_of(timeline)[-1] == "tc:turn_2.call_3.result"


def test_a_signal_before_the_first_decision_is_not_the_tail() -> None:
    timeline = play(0)
    timeline.start_round()
    timeline.say("followup", "sig_1", "and the mean")

    assert refs_of(timeline)[-1] == "ar:turn_2.user.prompt"


def test_a_hidden_block_attracts_no_point() -> None:
    timeline = play(3)
    hide(timeline, "tc:turn_2.call_3.result")

    assert refs_of(timeline)[-1] == "tc:turn_2.call_3.call"


def test_a_round_that_is_hidden_whole_attracts_no_point() -> None:
    timeline = play(3)
    hide(timeline, "tc:turn_2.call_3.result", "tc:turn_2.call_3.call")

    assert refs_of(timeline)[1:] == ["tc:turn_2.call_1.result", "tc:turn_2.call_2.result"]


def test_a_block_that_was_made_light_attracts_no_point() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "first")
    timeline.start_round()
    timeline.answer("word " * 2_000)
    timeline.start_turn("turn_2", "second")
    body = SystemMessageBody(kind="cache_ttl_pruned", text="x", recent_from_seq=1, intact_from_seq=5)
    timeline.add(BlockType.SYSTEM_MESSAGE, "ar:turn_2.round.0.pruned", body)

    assert refs_of(timeline) == ["ar:turn_1.user.prompt", "ar:turn_2.round.0.pruned"]


def test_a_checkpoint_is_not_taken_for_the_end_of_a_round() -> None:
    timeline = play(3)
    first = next(block.seq for block in timeline.blocks if block.turn_id == "turn_2" and block.round == 1)
    body = RangeSummaryBody(
        scope="turn", first_seq=first, last_seq=first + 2, turn_ids=(), text="x",
        before_tokens=9, after_tokens=1, by="rules",
    )  # fmt: skip
    timeline.add(BlockType.RANGE_SUMMARY, "su:turn_2.conv.range.summary", body)

    assert refs_of(timeline)[1:] == ["tc:turn_2.call_2.result", "tc:turn_2.call_3.result"]


def test_only_what_follows_the_pre_tail_may_be_hidden() -> None:
    timeline = play(7)
    view = TimelineView(timeline.blocks)

    first = first_editable_seq(view.items, view.turn_at)

    editable = [block.ref for block in timeline.blocks if block.seq >= first and block.round > 0]
    assert editable[1] == "tc:turn_2.call_4.call"


def test_before_there_is_a_pre_tail_the_turn_itself_may_be_hidden() -> None:
    timeline = play(1)
    view = TimelineView(timeline.blocks)

    first = first_editable_seq(view.items, view.turn_at)

    assert timeline.blocks[first - 1].turn_id == "turn_2"
    assert first_editable_seq([], 0) == 1


@given(rounds=st.integers(1, 9), chosen=st.integers(0, 30))
def test_hiding_what_may_be_hidden_changes_nothing_up_to_the_pre_tail(rounds: int, chosen: int) -> None:
    timeline = play(rounds)
    before = TimelineView(timeline.blocks)
    first = first_editable_seq(before.items, before.turn_at)
    points = choose_cache_points(before.items, before.turn_at)
    editable = [item.block for item in before.items if item.block.seq >= first and item.block.round > 0]
    stays = points.pre_tail if points.pre_tail is not None else points.previous_turn
    assert stays is not None

    hide(timeline, editable[chosen % len(editable)].ref)

    after = TimelineView(timeline.blocks)
    assert after.items[: stays + 1] == before.items[: stays + 1]
