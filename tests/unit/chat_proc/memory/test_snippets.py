from chat_proc.memory.snippets import MAX_FILE_CHUNKS, MAX_SNIPPETS, build_snippets, find_attachments, read_anchors
from everturn.core import refs
from everturn.memory.search import SnippetTarget
from everturn.timeline.blocks import AnchorBody, BlockType, SummaryBody
from everturn_testing.timeline import NOW, TimelineBuilder, build_file

TURN = "turn_1"
SUMMARY = """Goal: compare regions
Outcome: done
Refs: fi:turn_1.outputs/a.csv
Retrieval anchors: Zephyr, "north leads"
- Entities: Acme Corp"""


def timeline(*attachments) -> TimelineBuilder:
    built = TimelineBuilder()
    built.start_turn(TURN, "Which region leads?", *attachments)
    built.start_round()
    return built


def test_snippets_have_the_refs_of_their_blocks() -> None:
    built = timeline()
    built.think("Not to be found.")
    built.call("call_1", "react.read", {"paths": ["x"]})
    built.result("call_1", "react.read", "Not to be found either.")
    built.say("followup", "sig_1", "And the south?")
    built.add(BlockType.ANCHOR, refs.notes_ref(TURN, "call_1"), AnchorBody(text="[D] use Postgres", tags=("D",)))
    built.answer("North leads.")
    built.add(BlockType.WORKING_SUMMARY, refs.working_summary_ref(TURN), SummaryBody(text=SUMMARY))

    found = build_snippets(built.blocks, {})

    assert [(each.target, each.ref, each.text) for each in found] == [
        (SnippetTarget.SUMMARY, refs.working_summary_ref(TURN), SUMMARY),
        (SnippetTarget.NOTES, refs.notes_ref(TURN, "call_1"), "[D] use Postgres"),
        (SnippetTarget.USER, refs.prompt_ref(TURN), "Which region leads?"),
        (SnippetTarget.USER, refs.external_ref(TURN, "followup", "sig_1"), "And the south?"),
        (SnippetTarget.ASSISTANT, refs.completion_ref(TURN, 1), "North leads."),
    ]
    assert {each.ts for each in found} == {NOW}


def test_an_answer_that_was_deferred_and_given_again_is_found_once() -> None:
    built = timeline()
    built.answer("North leads.")
    built.say("followup", "sig_1", "And the south?")
    built.start_round()
    built.answer("North  leads.", 2)
    built.start_round()
    built.answer("North leads, the south is last.", 3)

    found = [each for each in build_snippets(built.blocks, {}) if each.target is SnippetTarget.ASSISTANT]

    assert [(each.ref, each.text) for each in found] == [
        (refs.completion_ref(TURN, 2), "North  leads."),
        (refs.completion_ref(TURN, 3), "North leads, the south is last."),
    ]


def test_retrieval_anchors_of_a_summary_are_its_anchors() -> None:
    assert read_anchors(SUMMARY) == 'Zephyr, "north leads"\nAcme Corp'
    assert read_anchors("Goal: none") == ""
    assert read_anchors("**Retrieval-anchors:** Kiwi") == "** Kiwi"


def test_an_internal_anchor_is_an_anchor_as_a_whole() -> None:
    built = timeline()
    built.add(BlockType.ANCHOR, refs.notes_ref(TURN, "c"), AnchorBody(text="[P] metric units", tags=("P",)))

    assert build_snippets(built.blocks, {})[0].anchors == "[P] metric units"


def test_attached_files_are_found_by_name_and_by_what_is_in_them() -> None:
    table, photo = (
        build_file(TURN, "sales.csv", b"a", mime="text/csv"),
        build_file(TURN, "cat.png", b"b", mime="image/png"),
    )
    late = build_file(TURN, "late.txt", b"c")
    built = timeline(table, photo)
    built.say("followup", "sig_1", "", late)

    found = [each for each in build_snippets(built.blocks, {table.ref: "region,total\n" * 200, late.ref: "tail"})
             if each.target is SnippetTarget.ATTACHMENT]  # fmt: skip

    assert [file.ref for file in find_attachments(built.blocks)] == [table.ref, photo.ref, late.ref]
    assert [each.text for each in found if each.ref == photo.ref] == ["cat.png (image/png)"]
    assert [each.text[:12] for each in found if each.ref == table.ref] == ["sales.csv (t", *["region,total"] * 3]
    assert [each.text for each in found if each.ref == late.ref] == ["late.txt (text/plain)", "tail"]


def test_a_blank_steer_leaves_nothing() -> None:
    built = timeline()
    built.say("steer", "sig_1", "  ")

    assert [each.ref for each in build_snippets(built.blocks, {})] == [refs.prompt_ref(TURN)]


def test_a_long_turn_keeps_its_most_useful_snippets() -> None:
    files = [build_file(TURN, f"{n}.txt", bytes([n])) for n in range(5)]
    built = timeline(*files)
    built.answer("word " * 10_000)
    built.add(BlockType.WORKING_SUMMARY, refs.working_summary_ref(TURN), SummaryBody(text="Goal: all"))

    found = build_snippets(built.blocks, {file.ref: "line\n" * 50_000 for file in files})

    assert len(found) == MAX_SNIPPETS
    assert found[0].text == "Goal: all"
    assert [each.ref for each in found].count(files[0].ref) == 1 + MAX_FILE_CHUNKS
