"""What a typed line means."""

import pytest

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
        ("/files", ListFiles()),
        ("/quit", Quit()),
        ("/dance", Help()),
    ],
)
def test_a_line_is_a_message_or_a_command(line: str | None, expected: Typed | None) -> None:
    assert parse_line(line) == expected
