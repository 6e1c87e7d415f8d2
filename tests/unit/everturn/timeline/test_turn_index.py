"""The index of a turn names everything of it that can be read back."""

from everturn.core import refs
from everturn.files.model import ArtifactKind
from everturn.timeline.blocks import AnchorBody, Block, BlockType, CompletionBody, ExitBody, NotesBody, SummaryBody
from everturn.timeline.turn_index import MAX_HINT_CHARS, build_turn_index, render_turn_index
from everturn.timeline.turns import Outcome, TurnUsage
from everturn_testing.timeline import NOW, TimelineBuilder, build_file

CSV = build_file("turn_1", "sales.csv", b"a,b", mime="text/csv")
CHART = build_file("turn_1", "chart.png", b"png", mime="image/png", kind=ArtifactKind.OUTPUT)


def play_turn() -> list[Block]:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Draw the sales.\n" * 100, CSV)
    timeline.start_round()
    timeline.think("I need a chart.")
    timeline.add(BlockType.NOTES, refs.notes_ref("turn_1", "call_1"), NotesBody(text="✓ [1] read"))
    timeline.call("call_1", "exec_tools.execute_code_python", {"prog_name": "chart", "contract": []}, code="print()")
    timeline.result("call_1", "exec_tools.execute_code_python", "drawn", CHART)
    timeline.say("followup", "sig_1", "in blue")
    timeline.add(BlockType.ANCHOR, refs.round_ref("turn_1", 1, "anchor"), AnchorBody(text="[D] blue", tags=("D",)))
    timeline.call("call_2", "react.read", {"paths": ["so:sources_pool[1]"]})
    summary = refs.working_summary_ref("turn_1")
    timeline.add(BlockType.WORKING_SUMMARY, summary, SummaryBody(text="Goal: a chart"))
    body = CompletionBody(text="Here it is.", sources_used=(3, 1, 2))
    timeline.add(BlockType.COMPLETION, refs.completion_ref("turn_1", 1), body)
    ended = ExitBody(outcome=Outcome.COMPLETED, rounds=1, usage=TurnUsage(), elapsed_ms=1)
    timeline.add(BlockType.EXIT, refs.round_ref("turn_1", 1, "exit"), ended)
    return timeline.blocks


def test_every_section_names_its_refs() -> None:
    index = build_turn_index("turn_1", play_turn())

    assert [entry.ref for entry in index.summaries] == ["ws:turn_1.conv.working.summary"]
    assert [entry.ref for entry in index.messages] == ["ar:turn_1.user.prompt", "ar:turn_1.assistant.completion.1"]
    assert [(entry.kind, entry.hint) for entry in index.events] == [("user.followup", "in blue")]
    assert [entry.kind for entry in index.notes] == ["react.thinking", "react.notes", "react.tool.code", "react.note"]
    assert [(file.ref, file.source) for file in index.artifacts] == [
        (CSV.ref, "user.attachment.meta"),
        (CHART.ref, "exec_tools.execute_code_python"),
    ]
    assert index.sources == ("so:sources_pool[1-3]",)
    assert (index.started_at, index.ended_at, index.outcome) == (NOW, NOW, "completed")


def test_a_tool_is_named_with_its_status_call_result_and_a_hint() -> None:
    done, open_call = build_turn_index("turn_1", play_turn()).tools

    assert (done.status, done.call_ref, done.result_ref) == ("ok", "tc:turn_1.call_1.call", "tc:turn_1.call_1.result")
    assert done.hint == "prog_name=chart, contract=[] -> drawn"
    assert (open_call.status, open_call.result_ref) == (None, None)


def test_hints_are_short() -> None:
    index = build_turn_index("turn_1", play_turn())
    entries = (*index.summaries, *index.messages, *index.events, *index.notes, *index.tools, *index.artifacts)

    assert max(len(entry.hint) for entry in entries) == MAX_HINT_CHARS
    assert all("\n" not in entry.hint for entry in entries)


def test_a_ref_of_several_blocks_is_named_once_with_what_it_gives_now() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Hello")
    for text in ("first", "second"):
        timeline.add(BlockType.WORKING_SUMMARY, refs.working_summary_ref("turn_1"), SummaryBody(text=text))

    assert [entry.hint for entry in build_turn_index("turn_1", timeline.blocks).summaries] == ["second"]


def test_the_text_has_a_line_for_each_entry() -> None:
    text = render_turn_index(build_turn_index("turn_1", play_turn()))

    assert text.startswith("index of turn_1:\npath: ar:turn_1.react.turn.index\nstarted: ")
    assert "\n\ntools:\n- exec_tools.execute_code_python ok: call=tc:turn_1.call_1.call; result=tc:turn" in text
    assert f"- {CHART.ref} (output, image/png, 3 bytes, from exec_tools.execute_code_python, external)" in text
    assert "- react.read no result: call=tc:turn_1.call_2.call" in text


def test_an_index_that_leaves_blocks_out_says_so() -> None:
    assert "left out" in render_turn_index(build_turn_index("turn_1", play_turn(), more=True))
