"""Writing to a terminal."""

import io

import pytest

from everturn_client.terminal.markdown import make_inert
from everturn_client.terminal.screen import Piece, Screen


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_answers_go_to_standard_output() -> None:
    out, err = io.StringIO(), io.StringIO()

    Screen(out, err, colour=True).write([Piece("answer", "Hi"), Piece("thinking", "hm"), Piece("bad", "no")])

    assert (out.getvalue(), err.getvalue()) == ("Hi", "hmno")


def test_an_answer_is_laid_out_for_a_terminal_and_stays_as_it_is_in_a_pipe() -> None:
    shown, piped = Tty(), io.StringIO()

    for out in (shown, piped):
        screen = Screen(out, io.StringIO(), colour=True)
        screen.write([Piece("answer", "It is **so**\x1b[2J", begins=True), Piece("answer", ".\n")])
        screen.say("1 round")

    assert shown.getvalue() == "It is \x1b[1mso\x1b[0m\\u001b[2J.\n"
    assert piped.getvalue() == "It is **so**\\u001b[2J.\n"


@pytest.mark.parametrize(
    "text",
    [
        "<http://a.example/%1b%5b2J%07>",
        "<http://a.example/%e2%80%ae>",
        "a&#27;[2J &#x9b;2J &#x202e; &#7; &rlm;",
        "[&#x202e;&#27;](http://a.example/%1b%5b2J) ![&#x202e;](http://a.example/%1b)",
        "| &#x202e; |\n|---|\n| <http://a.example/%1b> |\n",
        "a&#x2028;b&#x2029;c &#xe0041;",
        "# &#x202e; <http://a.example/%9b>\n\n- &#x2066;\n\n> <http://a.example/%c2%9b>",
    ],
)
def test_no_markdown_of_an_answer_becomes_a_control_character(text: str) -> None:
    shown = Tty()
    screen = Screen(shown, io.StringIO(), colour=False)

    screen.write([Piece("answer", text, begins=True)])
    screen.end_answer()

    assert make_inert(shown.getvalue()) == shown.getvalue()


def test_separators_and_tags_are_shown_and_what_languages_need_is_kept() -> None:
    out = io.StringIO()

    Screen(out, io.StringIO(), colour=False).write(
        [
            Piece(
                "answer",
                "a\u2028b\u2029c\U000e0049\U000e007f \u202e| \u0645\u06cc\u200c\u062e \u0e01\u200b\u0e02 \u200f",
            )
        ]
    )

    shown = "a\\u2028b\\u2029c\\U000e0049\\U000e007f \\u202e| \u0645\u06cc\u200c\u062e \u0e01\u200b\u0e02 \u200f"
    assert out.getvalue() == shown


def test_only_answers_are_markdown() -> None:
    out = Tty()

    Screen(out, io.StringIO(), colour=True).write([Piece("output", "conv_1  *a*\n")])

    assert out.getvalue() == "conv_1  *a*\n"


def test_colour_is_only_for_terminals_that_want_it() -> None:
    coloured, plain = Tty(), Tty()

    Screen(Tty(), coloured, colour=True).say("x", "bad")
    Screen(Tty(), plain, colour=False).say("x", "bad")

    assert coloured.getvalue() == "\x1b[31mx\n\x1b[0m"
    assert plain.getvalue() == "x\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\nc ü 漢", "a\tb\nc ü 漢"),
        ("\x1b[2J", "\\u001b[2J"),
        ("\x9b31m\r\x7f", "\\u009b31m\\u000d\\u007f"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\ud800", "\\ud800"),
    ],
)
def test_text_can_not_steer_the_terminal(text: str, expected: str) -> None:
    assert make_inert(text) == expected
