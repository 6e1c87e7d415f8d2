"""Refs are found in running text, and lines with unknown ones are left out."""

from chat_proc.timeline.compaction.sections import KnownRefs, cut_line, cut_text, drop_unknown, find_refs, known_refs
from everturn.files.model import ArtifactKind
from everturn_testing.timeline import TimelineBuilder, build_file


def test_refs_are_found_with_any_punctuation_around_them() -> None:
    text = "See (tc:turn_1.call_1.result), `fi:turn_1.files/a.py`; so:sources_pool[1-3, 7]: ar:turn_1.user.prompt."

    assert find_refs(text) == [
        "tc:turn_1.call_1.result",
        "fi:turn_1.files/a.py",
        "so:sources_pool[1-3, 7]",
        "ar:turn_1.user.prompt",
    ]


def test_words_are_no_refs() -> None:
    assert find_refs("Well so: far, bar:x sis: ar: and similar:things") == []


def test_a_line_with_an_unknown_ref_is_left_out() -> None:
    known = KnownRefs(["ar:turn_1.user.prompt"])

    assert drop_unknown("- a (ar:turn_1.user.prompt).\n- b ar:turn_9.user.prompt\n- c", known) == (
        "- a (ar:turn_1.user.prompt).\n- c"
    )


def test_a_file_is_known_by_its_name_as_headers_show_it() -> None:
    known = KnownRefs(["fi:turn_1.files/sales [1].csv"])

    assert drop_unknown("- fi:turn_1.files/sales \\u005b1\\u005d.csv", known) != ""
    assert drop_unknown("- fi:turn_1.files/sales \\u005b2\\u005d.csv", known) == ""


def test_a_file_name_with_blanks_is_known_as_a_whole() -> None:
    known = KnownRefs(["fi:turn_1.user.attachments/my sales.csv"])

    assert drop_unknown("read fi:turn_1.user.attachments/my sales.csv again", known)
    assert not drop_unknown("read fi:turn_1.user.attachments/my taxes.csv again", known)


def test_known_refs_are_those_of_blocks_files_indexes_and_texts() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    timeline.start_round()
    timeline.call("call_1", "demo", {})
    timeline.result("call_1", "demo", "", build_file("turn_1", "a b.txt", b"x", kind=ArtifactKind.OUTPUT))

    known = known_refs(timeline.blocks, ["as in so:sources_pool[2]"])

    for ref in (
        "ar:turn_1.user.prompt",
        "tc:turn_1.call_1.result",
        "fi:turn_1.outputs/a b.txt",
        "ar:turn_1.react.turn.index",
        "so:sources_pool[2]",
    ):
        assert ref in known
    assert "ar:turn_2.user.prompt" not in known


def test_a_cut_never_goes_through_a_ref() -> None:
    line = "the result tc:turn_1.call_1.result of it"

    assert cut_line(line, 20) == "the result…"
    assert cut_line(line, 38) == "the result tc:turn_1.call_1.result of…"
    assert cut_text("one\ntwo tc:turn_1.call_1.result", 20) == "one\ntwo…"
    assert cut_text("one\ntwo", 20) == "one\ntwo"
    assert cut_line("tc:turn_1.call_1.result", 10) == ""
