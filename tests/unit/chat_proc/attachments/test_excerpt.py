"""Excerpts: exactly the asked part, and labels that are true."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from chat_proc.attachments.excerpt import COUNT_CHUNK_CHARS, Range, cut_excerpt, start_cutter
from everturn.timeline.rendering import count_lines

TEXT = "one\ntwo\nthree\nfour\n"
TEXTS = st.text(st.sampled_from("ab\n "), max_size=80)


def test_a_short_text_is_whole() -> None:
    excerpt = cut_excerpt(TEXT, Range(), 100)

    assert (excerpt.text, excerpt.label, excerpt.next_offset) == (TEXT, "lines [1-4]/4, characters [0-19]/19", None)


def test_a_long_text_ends_at_a_line_break_when_one_is_near() -> None:
    excerpt = cut_excerpt(TEXT, Range(), 10)

    assert (excerpt.text, excerpt.label, excerpt.next_offset) == ("one\ntwo\n", "lines [1-2]/4, characters [0-8]/19", 8)


def test_a_cut_inside_a_line_is_labelled() -> None:
    excerpt = cut_excerpt("a" * 30, Range(), 10)

    assert excerpt.label == "lines [1-0]/1 and part of the next, characters [0-10]/30"


def test_an_offset_continues_where_a_part_ended() -> None:
    excerpt = cut_excerpt(TEXT, Range(offset=8), 100)

    assert (excerpt.text, excerpt.label) == ("three\nfour\n", "characters [8-19]/19")


def test_lines_are_numbered() -> None:
    excerpt = cut_excerpt(TEXT, Range(line_start=2, line_count=2), 100)

    assert (excerpt.text, excerpt.label) == ("2: two\n3: three", "lines [2-3]/4")


def test_lines_beyond_the_end_are_reported_as_missing() -> None:
    excerpt = cut_excerpt(TEXT, Range(line_start=9), 100)

    assert (excerpt.text, excerpt.label) == ("", "nothing, because there is no line 9: the last line is 4")


def test_a_last_line_without_a_break_for_which_there_is_no_room_is_announced() -> None:
    excerpt = cut_excerpt("a\nbbb", Range(line_start=1), 5)

    assert (excerpt.text, excerpt.next_line) == ("1: a", 2)


def test_a_line_far_down_is_found_behind_empty_ones() -> None:
    text = "\n" * (3 * COUNT_CHUNK_CHARS) + "x"

    assert cut_excerpt(text, Range(line_start=3 * COUNT_CHUNK_CHARS + 1), 100).text == f"{3 * COUNT_CHUNK_CHARS + 1}: x"


def test_lines_stop_at_the_cap_and_a_line_longer_than_the_cap_is_cut() -> None:
    stopped = cut_excerpt(TEXT, Range(line_start=1), 14)
    assert (stopped.text, stopped.next_line) == ("1: one\n2: two", 3)
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


def test_an_offset_beyond_the_end_is_an_empty_range() -> None:
    excerpt = cut_excerpt(TEXT, Range(offset=99), 100)

    assert (excerpt.text, excerpt.label, excerpt.next_offset) == ("", "characters [19-19]/19", None)


def test_an_empty_text_has_an_empty_range() -> None:
    assert cut_excerpt("", Range(), 10).label == "lines [0-0]/0, characters [0-0]/0"
    assert cut_excerpt("", Range(line_start=1), 10).label == "nothing, because there is no line 1: the last line is 0"


RANGES = st.builds(
    Range,
    line_start=st.none() | st.integers(1, 12),
    line_count=st.none() | st.integers(1, 5),
    offset=st.none() | st.integers(0, 90),
)


@given(text=TEXTS, wanted=RANGES, cap=st.integers(0, 40), cuts=st.lists(st.integers(0, 80), max_size=8))
def test_a_text_in_pieces_gives_the_same_part(text: str, wanted: Range, cap: int, cuts: list[int]) -> None:
    places = sorted(cut for cut in cuts if cut <= len(text))
    cutter = start_cutter(wanted, cap)

    for begin, end in pairwise([0, *places, len(text)]):
        cutter.feed(text[begin:end])

    assert cutter.finish() == cut_excerpt(text, wanted, cap)


@given(text=TEXTS, first=st.integers(1, 12), count=st.none() | st.integers(1, 5))
def test_lines_are_those_that_an_editor_numbers(text: str, first: int, count: int | None) -> None:
    excerpt = cut_excerpt(text, Range(line_start=first, line_count=count), 10_000)

    lines = text.split("\n")[: count_lines(text)]
    wanted = lines[first - 1 : None if count is None else first - 1 + count]
    assert excerpt.text == "\n".join(f"{first + n}: {line}" for n, line in enumerate(wanted))
    if wanted:
        assert excerpt.label == f"lines [{first}-{first + len(wanted) - 1}]/{len(lines)}"
    assert not excerpt.is_whole
    assert excerpt.next_line is None


@given(text=TEXTS, wanted=RANGES, cap=st.integers(0, 40))
def test_no_part_is_larger_than_its_cap(text: str, wanted: Range, cap: int) -> None:
    excerpt = cut_excerpt(text, wanted, cap)

    assert len(excerpt.text) <= cap
    assert (excerpt.chars, excerpt.lines) == (len(text), count_lines(text))
