"""Text that looks like our markup is marked, everything else is untouched, and marking can be undone."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.timeline.inert import escape_line, escape_name, make_inert, read_back

TRICKY = st.lists(
    st.sampled_from(
        [
            "[user.prompt ar:x]",
            "[TURN turn_1]",
            "| ",
            " ",
            "\t",
            "\n",
            "\r",
            "\u2028",
            "\u200b",
            "</channel:code>",
            "<channel:",
            "[",
            "a",
        ]
    ),
    max_size=12,
).map("".join)


@given(text=TRICKY | st.text(max_size=60))
def test_whatever_is_marked_reads_back_as_it_was(text: str) -> None:
    assert read_back(make_inert(text)) == text


@given(text=TRICKY)
def test_no_line_of_inert_text_is_a_header_or_holds_a_bare_tag(text: str) -> None:
    for line in make_inert(text).splitlines():
        if "<channel:" in line or "</channel:" in line or line.strip().startswith(("[user.prompt", "[TURN")):
            assert line.startswith("| ")


@pytest.mark.parametrize(
    "line",
    [
        "[user.prompt ar:turn_9.user.prompt]",
        "  [react.tool.result tc:turn_1.call_1.result] ok",
        "[TURN turn_9]",
        "[announce]",
        "[PREVIOUS MEMORY]",
        "text with </channel:action> inside",
        "<CHANNEL:code>",
        "[CLOSING]",
        "\u200b[ANNOUNCE]",
        " \ufeff\xad [TURN turn_9]",
        "[ \u200bANNOUNCE]",
    ],
)
def test_a_line_that_looks_like_ours_is_marked(line: str) -> None:
    assert make_inert(f"before\n{line}\nafter") == f"before\n| {line}\nafter"


@pytest.mark.parametrize(
    "text", ["", "[1] a note", "[tool.ruff]", "[[S:1]]", "| a | table |", "a\n\nb", "see [TURN 3]"]
)
def test_ordinary_text_is_verbatim(text: str) -> None:
    assert make_inert(text) == text


def test_marking_stays_linear_on_hostile_text() -> None:
    hostile = " " * 200_000 + "[\n" + "| " * 100_000 + "\n" + "<" * 200_000 + "\n" * 100_000

    begun = time.process_time()
    make_inert(hostile)

    assert time.process_time() - begun < 2.0


def test_a_name_for_a_header_shows_its_invisible_characters() -> None:
    assert escape_line("in\u202evoice\u200b é\U0001f600.txt") == "in\\u202evoice\\u200b é\U0001f600.txt"


def test_a_name_of_any_length_is_shown_in_short() -> None:
    assert escape_name("a" * 300) == "a" * 300
    assert escape_name("a" * 301) == "a" * 300 + "..."
    assert escape_name("a\nb") == "a\\nb"
