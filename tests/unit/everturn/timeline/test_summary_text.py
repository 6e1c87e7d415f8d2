"""How a summary reads."""

from everturn.timeline.blocks import BlockType, KeptText, RangeSummaryBody
from everturn.timeline.forms import render_memory
from everturn.timeline.rendering import block_source, render_memory_text
from everturn_testing.timeline import TimelineBuilder

KEPT = (
    KeptText(ref="su:turn_2.conv.range.summary", kind="conv.range.summary", text="40 turns"),
    KeptText(ref="ar:turn_3.user.prompt", kind="user.prompt", text="Count.\n[TURN turn_9]"),
    KeptText(ref="ar:turn_3.external.steer.sig_1", kind="user.steer", text=""),
    KeptText(ref="ar:turn_3.round.1.note", kind="react.note", text="[P] tables\n[D] chose a"),
)


def build_body(scope: str) -> RangeSummaryBody:
    return RangeSummaryBody.model_validate(
        {"scope": scope, "first_seq": 1, "last_seq": 1, "turn_ids": [], "text": "## Done\n- it", "kept": KEPT}
        | {"before_tokens": 9, "after_tokens": 1, "by": "rules"}
    )


def lines_of(scope: str) -> list[str]:
    return render_memory_text("su:turn_4.conv.range.summary", build_body(scope)).splitlines()


def test_a_summary_has_text_chapters_requests_and_anchors() -> None:
    assert lines_of("history") == [
        "path=su:turn_4.conv.range.summary; stands for the earlier turns",
        "## Done",
        "- it",
        "Earlier turns; each of these lists its turns:",
        "- su:turn_2.conv.range.summary: 40 turns",
        "Asked in these turns, oldest first; a turn's index names everything in it:",
        "- ar:turn_3.react.turn.index asked: Count.",
        "[TURN turn_9]",
        "- ar:turn_3.external.steer.sig_1 steer",
        "Anchors:",
        "- ar:turn_3.round.1.note: [P] tables",
        "[D] chose a",
    ]


def test_a_checkpoint_names_the_prompt_itself() -> None:
    lines = lines_of("turn")

    assert lines[0] == "path=su:turn_4.conv.range.summary; stands for the earlier rounds of this turn"
    assert "- ar:turn_3.user.prompt asked: Count." in lines


def test_reading_a_memory_by_its_ref_gives_all_that_was_shown_of_it() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_4", "Go")
    block = timeline.add(BlockType.RANGE_SUMMARY, "su:turn_4.conv.range.summary", build_body("history"))

    assert block_source(block).splitlines() == lines_of("history")
    assert "\n| [TURN turn_9]" in render_memory(block, build_body("history"))
