"""Excerpts: exactly the asked part, and labels that are true."""

from hypothesis import given
from hypothesis import strategies as st

from chat_proc.tools.context.excerpt import Range, count_lines, cut_excerpt

TEXT = "one\ntwo\nthree\nfour\n"
TEXTS = st.text(st.sampled_from("ab\n "), max_size=80)


def test_a_short_text_is_whole() -> None:
    excerpt = cut_excerpt(TEXT, Range(), 100)

    assert (excerpt.text, excerpt.label, excerpt.next_offset) == (TEXT, "lines [1-4]/4, characters [0-19]/19", None)


def test_a_long_text_ends_at_a_line_break_when_one_is_near() -> None:
    excerpt = cut_excerpt(TEXT, Range(), 10)

    assert (excerpt.text, excerpt.label, excerpt.next_offset) == ("one\ntwo\n", "lines [1-2]/4, characters [0-8]/19", 8)


def test_a_cut_inside_a_line_is_told() -> None:
    excerpt = cut_excerpt("a" * 30, Range(), 10)

    assert excerpt.label == "lines [1-0]/1 and part of the next, characters [0-10]/30"


def test_an_offset_goes_on_where_a_part_ended() -> None:
    excerpt = cut_excerpt(TEXT, Range(offset=8), 100)

    assert (excerpt.text, excerpt.label) == ("three\nfour\n", "characters [8-19]/19")


def test_lines_are_numbered() -> None:
    excerpt = cut_excerpt(TEXT, Range(line_start=2, line_count=2), 100)

    assert (excerpt.text, excerpt.label) == ("2: two\n3: three", "lines [2-3]/4")


def test_lines_beyond_the_end_are_an_empty_range() -> None:
    assert cut_excerpt(TEXT, Range(line_start=9), 100).label == "lines [9-8]/4"


def test_lines_stop_at_the_cap_and_a_line_longer_than_the_cap_is_cut() -> None:
    assert cut_excerpt(TEXT, Range(line_start=1), 14).text == "1: one\n2: two"
    assert cut_excerpt("x" * 50, Range(line_start=1), 10).label == "lines [1-1]/1, cut in the middle of its line"


@given(text=TEXTS, cap=st.integers(1, 30))
def test_following_the_offsets_reads_every_character_once(text: str, cap: int) -> None:
    read, offset = "", 0

    while offset is not None:
        excerpt = cut_excerpt(text, Range(offset=offset), cap)
        assert len(excerpt.text) <= cap
        read, offset = read + excerpt.text, excerpt.next_offset

    assert read == text


@given(text=TEXTS)
def test_lines_are_counted_as_an_editor_does(text: str) -> None:
    assert count_lines(text) == len(text.splitlines())
