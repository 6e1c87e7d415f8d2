"""The command line."""

from pathlib import Path

import pytest

from everturn_client.arguments import build_command_prefix, build_parser
from everturn_client.settings import load_settings

SETTINGS = load_settings({"HOME": "/home/ann", "EVERTURN_TOKEN": "secret"})


def test_chat_takes_a_text_files_and_a_conversation() -> None:
    arguments = build_parser(SETTINGS).parse_args(
        ["chat", "Hi", "--file", "a", "--file", "b", "--conversation", "conv_1"]
    )

    assert (arguments.text, arguments.files, arguments.conversation) == ("Hi", [Path("a"), Path("b")], "conv_1")
    assert (arguments.url, arguments.token, arguments.user) == ("http://127.0.0.1:8080", "secret", None)


@pytest.mark.parametrize(
    "line",
    [
        [],
        ["dance"],
        ["chat", "x", "--continue", "--conversation", "c"],
        ["feedback", "turn_1", "great"],
        ["conversations", "--limit", "0"],
        ["chat", "x", "--url", "ftp://x"],
    ],
)
def test_wrong_usage_ends_with_code_2(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser(SETTINGS).parse_args(line)

    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_the_command_to_go_on_names_server_and_user_but_never_the_token() -> None:
    parser = build_parser(SETTINGS)
    usual = parser.parse_args(["chat", "x", "--token", "t"])
    other = parser.parse_args(["chat", "x", "--url", "http://h:1/", "--user", "ann", "--tenant", "acme"])

    assert build_command_prefix(usual, SETTINGS) == "everturn"
    assert build_command_prefix(other, SETTINGS) == "everturn --url http://h:1 --user ann --tenant acme"
