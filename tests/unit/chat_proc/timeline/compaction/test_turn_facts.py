"""What rules tell of turns and rounds."""

from chat_proc.timeline.compaction.sections import Section
from chat_proc.timeline.compaction.turn_facts import fold_anchors, list_calls, summarize_rounds, summarize_turns
from everturn.core.errors import problem
from everturn.files.model import ArtifactKind
from everturn.timeline.blocks import AnchorBody, Block, BlockType, ExitBody, NotesBody, SummaryBody
from everturn.timeline.turns import TurnUsage
from everturn_testing.long_conversations import play_conversation
from everturn_testing.timeline import TimelineBuilder, build_file


def shown(block: Block) -> None:
    """Nothing is hidden."""


def test_a_turn_is_summarized_by_its_working_summary() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "How were sales?")
    text = "Goal: sales\nOutcome: they grew\n- by 3 %\nKey facts:\n- north leads\nRefs: fi:turn_1.outputs/a.png\n"
    summary = SummaryBody(text=text + "Retrieval anchors: north, growth")
    timeline.add(BlockType.WORKING_SUMMARY, "ws:turn_1.conv.working.summary", summary)
    timeline.answer("They grew by 3 %.")

    reported = summarize_turns(timeline.blocks)

    assert reported[Section.DONE] == ["How were sales? -> they grew by 3 % (ws:turn_1.conv.working.summary)"]
    assert reported[Section.FACTS] == ["north leads"]
    assert reported[Section.REFS] == ["fi:turn_1.outputs/a.png"]
    assert reported[Section.ANCHORS] == ["north, growth"]


def test_a_turn_without_a_working_summary_uses_its_answer() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Hello")
    timeline.answer("Hello, Ann.")

    assert summarize_turns(timeline.blocks)[Section.DONE] == ["Hello -> Hello, Ann. (ar:turn_1.assistant.completion.1)"]


def test_a_turn_without_an_answer_stays_open_with_the_reason() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Hello")
    failure = problem("x", "The model did not answer.", 503)
    body = ExitBody(error=failure, rounds=1, usage=TurnUsage(), elapsed_ms=1)
    timeline.add(BlockType.EXIT, "ar:turn_1.round.0.exit", body)

    assert summarize_turns(timeline.blocks)[Section.OPEN] == [
        "Hello -> The model did not answer. (ar:turn_1.react.turn.index)"
    ]


def test_the_next_step_of_the_current_plan_is_what_comes_next() -> None:
    reported = summarize_turns(play_conversation(["plan", "plan", "mark"]).blocks)

    assert reported[Section.NEXT] == ["plan_2: □ [2] second"]
    assert reported[Section.OPEN][-1] == "plan_1: □ [1] first of 1"


def test_the_ledger_groups_call_result_size_shape_files_and_sources() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    timeline.call("call_1", "web.search", {"query": "x", "k": 3})
    output = build_file("turn_1", "a b.md", b"x", kind=ArtifactKind.OUTPUT)
    timeline.result("call_1", "web.search", '{"rows": ["so:sources_pool[1-2]"]}', output)
    timeline.call("call_2", "demo", {})

    assert list_calls(timeline.blocks, shown) == [
        "web.search(k=3, query=x) tc:turn_1.call_1.call -> ok, 34 characters: object of 1 keys "
        "tc:turn_1.call_1.result fi:turn_1.outputs/a b.md so:sources_pool[1-2]",
        "demo() tc:turn_1.call_2.call -> no result",
    ]


def test_rounds_are_summarized_by_requests_notes_and_calls() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Do one.")
    timeline.start_round()
    timeline.add(BlockType.NOTES, "ar:turn_1.react.notes.call_1", NotesBody(text="I look it up."))
    timeline.say("followup", "sig_1", "And two.")

    reported = summarize_rounds(timeline.blocks, shown)

    assert reported[Section.ACTIVE] == [
        "Do one. (ar:turn_1.user.prompt)",
        "And two. (ar:turn_1.external.followup.sig_1)",
    ]
    assert reported[Section.DONE] == ["I look it up."]


def test_preference_lines_of_anchors_are_folded_newest_twelve_each_once() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    for n in [*range(20), 19]:
        body = AnchorBody(text=f"[P] likes {n}\n[D] decided {n}\n[A] did {n}")
        timeline.add(BlockType.ANCHOR, f"ar:turn_1.round.0.note{n}", body)
    timeline.add(BlockType.ANCHOR, "ar:turn_1.round.0.x", AnchorBody(text="short answers", tags=("P",)))

    reported = fold_anchors(timeline.blocks)

    assert len(reported[Section.PREFERENCES]) == 12
    assert reported[Section.PREFERENCES][-2:] == ["likes 19", "short answers"]
    assert reported[Section.DECISIONS][-1] == "decided 19"
    assert not any("did" in line for lines in reported.values() for line in lines)
