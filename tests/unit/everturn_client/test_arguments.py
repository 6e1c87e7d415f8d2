"""The command line."""

from pathlib import Path

import pytest

from everturn_client.arguments import build_command_prefix, build_parser, parse_arguments
from everturn_client.settings import load_settings

SETTINGS = load_settings({"HOME": "/home/ann", "EVERTURN_TOKEN": "secret"})


def test_chat_takes_a_text_files_and_a_conversation() -> None:
    arguments = build_parser(SETTINGS).parse_args(
        ["chat", "Hi", "--file", "a", "--file", "b", "--conversation", "conv_1"]
    )

    assert (arguments.text, arguments.files, arguments.conversation) == ("Hi", [Path("a"), Path("b")], "conv_1")
    assert (arguments.url, arguments.token, arguments.user) == ("http://127.0.0.1:8080", "secret", None)


def test_an_answer_names_its_approval_and_may_have_a_reason() -> None:
    parser = build_parser(SETTINGS)

    denied = parser.parse_args(["answer", "appr_1", "deny", "Not today.", "--conversation", "conv_1"])
    approved = parser.parse_args(["answer", "appr_1", "approve"])

    assert (denied.approval, denied.kind, denied.reason, denied.conversation) == (
        "appr_1", "deny", "Not today.", "conv_1",
    )  # fmt: skip
    assert (approved.kind, approved.reason) == ("approve", "")


def test_the_last_word_of_a_command_can_follow_its_options() -> None:
    parser = build_parser(SETTINGS)

    signal = parse_arguments(parser, ["signal", "followup", "--conversation", "conv_1", "hello there"])
    answer = parse_arguments(parser, ["answer", "appr_1", "deny", "--conversation", "conv_1", "Not today."])

    assert (signal.text, signal.conversation) == ("hello there", "conv_1")
    assert (answer.reason, answer.conversation) == ("Not today.", "conv_1")


def test_a_signal_accepts_text_files_and_event_data() -> None:
    line = ["signal", "event", "Sent.", "--event-kind", "form", "--payload", '{"n": 1}', "--record-only", "--file", "a"]

    arguments = build_parser(SETTINGS).parse_args([*line, "--credit", "2", "--turn", "turn_1"])

    assert (arguments.kind, arguments.text, arguments.event_kind) == ("event", "Sent.", "form")
    assert (arguments.payload, arguments.record_only, arguments.credit) == ({"n": 1}, True, 2)
    assert (arguments.files, arguments.turn) == ([Path("a")], "turn_1")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["signal", "event", "--payload", '{"a": NaN}'], "must be a JSON object"),
        (["signal", "event", "--payload", '{"a": 1e999}'], "must be a JSON object"),
        (["signal", "event", "--payload", '{"a":' * 500 + "1" + "}" * 500], "must be a JSON object"),
        (["signal", "event", "--payload", "[1]"], "must be a JSON object"),
        (["signal", "followup", "--turn", "t", "one", "two"], "unrecognized arguments: one two"),
        (["signal", "event", "--payload", "[" * 100_000], "must be a JSON object"),
        (["signal", "event", "--payload", '{"a": ' + "9" * 5_000 + "}"], "must be a JSON object"),
        (["list", "--wait", "1e9"], "must be a number of seconds from 0 to 86400"),
        (["list", "--limit", "many"], "must be a whole number of at least 1"),
    ],
)
def test_a_wrong_value_is_reported_with_the_allowed_ones(
    line: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(build_parser(SETTINGS), line)

    said = capsys.readouterr().err
    assert message in said
    assert len(said) < 1_500


@pytest.mark.parametrize(
    "line",
    [
        ["dance"],
        ["chat", "x", "--continue", "--conversation", "c"],
        ["feedback", "turn_1", "great"],
        ["answer", "appr_1", "perhaps"],
        ["answer", "approve"],
        ["list", "--limit", "0"],
        ["rename", "conv_1"],
        ["delete"],
        ["conversations"],
        ["chat", "x", "--url", "ftp://x"],
        ["chat", "x", "--url", "http://[::1"],
        ["chat", "x", "--url", "http://h:99999"],
        ["chat", "x", "--url", "http://:8080"],
        ["signal", "shout"],
        ["signal", "event", "x", "--payload", "[1]"],
        ["signal", "event", "x", "--payload", "no"],
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
    other = parser.parse_args(["chat", "x", "--url", "http://h:1/", "--user", "ann b", "--tenant", "acme"])

    assert build_command_prefix("everturn", usual) == "everturn"
    assert build_command_prefix("bin/everturn", other) == "bin/everturn --url http://h:1 --user 'ann b' --tenant acme"


def test_server_and_user_may_be_named_before_and_after_the_command() -> None:
    parser = build_parser(SETTINGS)
    before = parser.parse_args(["--url", "http://h:1", "--user", "ann", "chat", "x"])
    after = parser.parse_args(["chat", "x", "--url", "http://h:1", "--user", "ann"])

    assert vars(before) == vars(after)
    assert (before.url, before.user, before.token, before.tenant) == ("http://h:1", "ann", "secret", "default")


def test_the_printed_continue_command_works() -> None:
    parser = build_parser(SETTINGS)
    arguments = parser.parse_args(["chat", "x", "--url", "http://h:1", "--user", "ann"])
    words = build_command_prefix("everturn", arguments).split()

    again = parser.parse_args([*words[1:], "chat", "--conversation", "c", "y"])

    assert (again.url, again.user, again.conversation) == ("http://h:1", "ann", "c")


def test_the_continue_command_names_a_server_from_the_environment() -> None:
    settings = load_settings({"HOME": "/home/ann", "EVERTURN_URL": "http://127.0.0.1:9000"})
    arguments = build_parser(settings).parse_args(["chat", "x"])

    assert build_command_prefix("everturn", arguments) == "everturn --url http://127.0.0.1:9000"


def test_the_help_shows_an_address_with_percent_signs() -> None:
    help_text = build_parser(load_settings({"EVERTURN_URL": "http://h/%7Eann"})).format_help()

    assert "http://h/%7Eann" in help_text


def test_the_wait_for_a_server_is_a_minute_unless_it_is_chosen() -> None:
    parser = build_parser(SETTINGS)

    assert parser.parse_args(["list"]).wait == 60
    assert parser.parse_args(["--wait", "0", "list"]).wait == 0
    assert parser.parse_args(["list", "--wait", "2.5"]).wait == 2.5
    for wrong in ("-1", "nan", "inf", "soon"):
        with pytest.raises(SystemExit):
            parser.parse_args(["list", "--wait", wrong])
