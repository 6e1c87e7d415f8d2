"""Which form a block has is decided by the blocks that were learnt."""

from chat_proc.timeline.view import BreakReason, Visibility, is_shown_whole
from everturn.timeline.blocks import AnchorBody, BlockType, HideBody, RangeSummaryBody, SummaryBody, SystemMessageBody
from everturn.timeline.forms import Form
from everturn.timeline.rendering import MAX_PROMPT_CHARS
from everturn_testing.timeline import TimelineBuilder


def learn(timeline: TimelineBuilder) -> tuple[Visibility, list[BreakReason]]:
    visibility = Visibility()
    reasons = [reason for block in timeline.blocks if (reason := visibility.learn(block)) is not None]
    return visibility, reasons


def test_only_hides_notices_and_summaries_change_what_was_visible() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    timeline.say("steer", "sig_1", "stop")
    timeline.add(BlockType.HIDE, "ar:turn_0.round.0.hide", HideBody(refs=("x",), through_seq=1, replacement="x"))
    notice = SystemMessageBody(kind="cache_ttl_pruned", text="x", recent_from_seq=1, intact_from_seq=1)
    timeline.add(BlockType.SYSTEM_MESSAGE, "ar:turn_0.round.0.pruned", notice)
    for scope in ("turn", "history"):
        summary = RangeSummaryBody(
            scope=scope, first_seq=1, last_seq=1, turn_ids=(), text="x", before_tokens=1, after_tokens=1, by="rules"
        )
        timeline.add(BlockType.RANGE_SUMMARY, "su:turn_0.conv.range.summary", summary)

    _, reasons = learn(timeline)

    assert reasons == [BreakReason.HIDE, BreakReason.PRUNE, BreakReason.CHECKPOINT, BreakReason.COMPACTION]


def test_a_recent_turn_is_light_except_for_what_is_never_pruned() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    timeline.add(BlockType.ANCHOR, "ar:turn_0.round.0.note", AnchorBody(text="x"))
    timeline.start_turn("turn_1", "Go on")
    notice = SystemMessageBody(kind="cache_ttl_pruned", text="x", recent_from_seq=1, intact_from_seq=4)
    timeline.add(BlockType.SYSTEM_MESSAGE, "ar:turn_1.round.0.pruned", notice)

    visibility, _ = learn(timeline)

    forms = [visibility.choose_form(block) for block in timeline.blocks]
    assert forms == [Form.FULL, Form.LIGHT, Form.FULL, Form.FULL, Form.FULL, Form.FULL]


def test_a_working_summary_stays_whole_in_a_recent_turn() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    timeline.add(BlockType.WORKING_SUMMARY, "ws:turn_0.conv.working.summary", SummaryBody(text="x" * 5_000))
    timeline.start_turn("turn_1", "Go on")
    notice = SystemMessageBody(kind="cache_ttl_pruned", text="x", recent_from_seq=1, intact_from_seq=4)
    timeline.add(BlockType.SYSTEM_MESSAGE, "ar:turn_1.round.0.pruned", notice)

    visibility, _ = learn(timeline)

    assert visibility.choose_form(timeline.blocks[2]) is Form.FULL


def test_a_text_within_its_cap_is_shown_whole() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "x" * MAX_PROMPT_CHARS)
    timeline.start_turn("turn_2", "x" * (MAX_PROMPT_CHARS + 1))
    timeline.start_round()
    timeline.call("call_1", "demo.echo", {"text": "x" * 3_000})

    assert [is_shown_whole(block) for block in timeline.blocks] == [True, True, True, False, False, False]


def test_a_block_of_a_turn_that_was_never_learnt_is_not_shown() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "From before the memory")
    timeline.start_turn("turn_1", "Go")
    visibility = Visibility()
    for block in timeline.blocks:
        if block.turn_id == "turn_1":
            visibility.learn(block)

    forms = {visibility.choose_form(block) for block in timeline.blocks if block.turn_id == "turn_0"}

    assert forms == {Form.GONE}
