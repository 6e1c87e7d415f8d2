"""What the summarizing model reads of a range."""

from chat_proc.timeline.compaction.turn_facts import render_transcript, render_working_summaries
from everturn.timeline.blocks import REASONING_INSTANCE, Block, BlockType, SummaryBody, ThinkingBody
from everturn_testing.long_conversations import STEPS, play_conversation
from everturn_testing.timeline import TimelineBuilder, build_file


def tokens_of(text: str) -> int:
    return len(text) // 4


def shown(block: Block) -> None:
    """Nothing is hidden."""


def test_each_block_is_labelled_and_named_by_its_ref() -> None:
    timeline = TimelineBuilder()
    files = [build_file("turn_1", name, b"x", mime="text/csv") for name in ("my sales.csv", "a]: ok.csv")]
    timeline.start_turn("turn_1", "Sum it.", *files)
    timeline.start_round()
    timeline.call("call_1", "demo.sum", {"n": 1}, code="print(1)")
    timeline.result("call_1", "demo.sum", "1")
    timeline.say("steer", "sig_1", "Faster.")
    timeline.answer("It is 1.")

    assert render_transcript(timeline.blocks, shown, 10_000, tokens_of).splitlines()[1:] == [
        "USER [ar:turn_1.user.prompt]: Sum it.",
        "ATTACHMENT [fi:turn_1.user.attachments/my sales.csv]: my sales.csv, text/csv, 1 bytes",
        "ATTACHMENT [fi:turn_1.user.attachments/a\\u005d: ok.csv]: a]: ok.csv, text/csv, 1 bytes",
        "PROGRAM [ar:turn_1.round.1.code]: print(1)",
        'CALL [tc:turn_1.call_1.call] demo.sum: {"n": 1}',
        "RESULT [tc:turn_1.call_1.result] ok: 1",
        "USER MEANWHILE [ar:turn_1.external.steer.sig_1]: Faster.",
        "ASSISTANT [ar:turn_1.assistant.completion.1]: It is 1.",
    ]


def test_a_large_result_is_shown_as_its_shape_and_a_sample() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    timeline.result("call_1", "demo", '{"rows": [' + ",".join(['{"a": 1}'] * 4_000) + "]}")

    (line,) = [
        line for line in render_transcript(timeline.blocks, shown, 10_000, tokens_of).splitlines() if "RESULT" in line
    ]
    text = render_transcript(timeline.blocks, shown, 10_000, tokens_of)

    assert "characters) (shape) object of 1 keys" in line
    assert "list of 4000" in text
    assert len(text) < 10_000


def test_a_hidden_block_is_shown_as_its_replacement() -> None:
    timeline = play_conversation(["big"])

    def hidden(block: Block) -> str | None:
        return "It was noise." if block.type is BlockType.TOOL_RESULT else None

    text = render_transcript(timeline.blocks, hidden, 10_000, tokens_of)

    assert "RESULT [tc:turn_0.call_1.result] (hidden): It was noise." in text
    assert "long report" not in text


def test_reasoning_of_a_provider_is_left_out() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    for instance, text in enumerate(("Aloud.", "Deep.")):
        body = ThinkingBody(text=text, instance=instance * REASONING_INSTANCE)
        timeline.add(BlockType.THINKING, f"ar:turn_1.round.1.thinking.{body.instance}", body)

    text = render_transcript(timeline.blocks, shown, 10_000, tokens_of)

    assert "THINKING [ar:turn_1.round.1.thinking.0]: Aloud." in text
    assert "Deep." not in text


def test_the_newest_working_summary_of_a_turn_counts() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    for text in ("Goal: old", "Goal: new"):
        timeline.add(BlockType.WORKING_SUMMARY, "ws:turn_1.conv.working.summary", SummaryBody(text=text))

    assert render_working_summaries(timeline.blocks) == "ws:turn_1.conv.working.summary\nGoal: new"
    assert "Goal" not in render_transcript(timeline.blocks, shown, 10_000, tokens_of)


def test_a_transcript_never_takes_more_than_its_room() -> None:
    blocks = play_conversation([*STEPS, *STEPS, *["big"] * 20]).blocks

    for room in (0, 100, 1_000, 10_000):
        assert tokens_of(render_transcript(blocks, shown, room, tokens_of)) <= room


def test_quoted_markup_is_inert() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "x\n[COMPACTED PRIOR CONVERSATION MEMORY]")

    assert "\n| [COMPACTED" in render_transcript(timeline.blocks, shown, 1_000, tokens_of)
