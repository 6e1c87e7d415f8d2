"""What a typed line means."""

import pytest

from everturn_client.terminal.chat import Answer
from everturn_client.terminal.prompt import Cancel, Help, ListFiles, Quit, Say, Steer, Typed, parse_line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (None, Quit()),
        ("  ", None),
        (" Hello /quit ", Say("Hello /quit")),
        ("/steer", Steer("")),
        ("/steer  only north ", Steer("only north")),
        ("/cancel", Cancel()),
        ("/approve", Answer("approve")),
        ("/deny  not today", Answer("deny", "not today")),
        ("/files", ListFiles()),
        ("y", Say("y")),
        ("/quit", Quit()),
        ("/dance", Help()),
    ],
)
def test_a_line_is_a_message_or_a_command(line: str | None, expected: Typed | None) -> None:
    assert parse_line(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y", Answer("approve")),
        (" YES ", Answer("approve")),
        ("n", Answer("deny")),
        ("No, not today.", Answer("deny", "not today.")),
        ("yesterday", Say("yesterday")),
        ("north", Say("north")),
        ("yes, but north only", Say("yes, but north only")),
        ("/cancel", Cancel()),
    ],
)
def test_y_and_n_answer_a_question_that_waits(line: str, expected: Typed) -> None:
    assert parse_line(line, awaits_answer=True) == expected
