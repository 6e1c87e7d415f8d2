"""Summaries are read however a model heads its sections, and cut from their older and longer lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.timeline.compaction.sections import (
    KnownRefs,
    Section,
    drop_unknown,
    fit_sections,
    merge_sections,
    parse_sections,
    render_sections,
)

LINES = st.text(st.characters(categories=["L", "N"], include_characters=" "), min_size=1).map(lambda text: f"x{text}x")
SECTIONS = st.dictionaries(st.sampled_from(Section), st.lists(LINES, min_size=1, max_size=30), min_size=1)


@pytest.mark.parametrize("heading", ["## Open", "Open:", "**Open**", "**Open:**", "### OPEN:", "open"])
def test_a_section_is_found_under_any_usual_heading(heading: str) -> None:
    assert parse_sections(f"{heading}\n- a\n* b\nc") == {Section.OPEN: ["a", "b", "c"]}


def test_a_heading_may_be_followed_by_its_only_line() -> None:
    assert parse_sections("Active request: the report\nDone: nothing") == {Section.ACTIVE: ["the report"]}


def test_a_sentence_that_begins_like_a_heading_is_a_line() -> None:
    assert parse_sections("## Done\nNext we meet the others.") == {Section.DONE: ["Next we meet the others."]}


def test_lines_without_a_known_heading_count_as_facts() -> None:
    assert parse_sections("a\n## Recovery plan\nb") == {Section.FACTS: ["a", "b"]}


@given(sections=SECTIONS)
def test_a_summary_reads_back_as_it_was_written(sections: dict[Section, list[str]]) -> None:
    tidy = {section: [" ".join(line.split()) for line in lines] for section, lines in sections.items()}

    assert parse_sections(render_sections(tidy)) == {section: tidy[section] for section in Section if section in tidy}


def test_a_repeated_line_appears_once_at_its_newer_place() -> None:
    merged = merge_sections({Section.FACTS: ["a", "b"]}, {Section.FACTS: ["A ", "c"], Section.OPEN: ["d"]})

    assert merged == {Section.FACTS: ["b", "A ", "c"], Section.OPEN: ["d"]}


@given(sections=SECTIONS, max_tokens=st.integers(0, 300))
def test_a_text_is_never_longer_than_its_room(sections: dict[Section, list[str]], max_tokens: int) -> None:
    assert len(fit_sections(sections, max_tokens, len)) <= max_tokens


def test_what_fits_is_not_cut() -> None:
    sections = {Section.FACTS: ["a" * 2_000]}

    assert fit_sections(sections, 3_000, len) == render_sections(sections)


def test_the_newest_lines_stay_when_not_all_have_room() -> None:
    text = fit_sections({Section.DONE: [f"line {n} {'.' * 80}" for n in range(40)]}, 600, len)

    assert "line 39" in text
    assert "line 0 " not in text


def test_a_ref_is_left_out_rather_than_cut() -> None:
    ref = "fi:turn_1.outputs/my long report.md"
    known = KnownRefs([ref])

    for room in range(20, 120):
        text = fit_sections({Section.REFS: [f"see {ref} for the figures of the year"]}, room, len, known)
        assert drop_unknown(text, known) == text
