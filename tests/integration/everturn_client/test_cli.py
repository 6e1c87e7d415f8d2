"""Exit codes of the terminal client."""

import os
import pty
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest


def run(*arguments: str, state: Path, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the client. Surrogates such as \\udcff in the input become the bytes that they stand for."""
    env = {**os.environ, "XDG_STATE_HOME": str(state), "EVERTURN_URL": "http://127.0.0.1:9", **variables}
    return subprocess.run(
        [sys.executable, "-m", "everturn_client.cli", *arguments],
        env=env,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=30,
        check=False,
    )


def test_without_a_server_the_exit_code_is_3_with_advice(tmp_path: Path) -> None:
    ended = run("chat", "--wait", "1", state=tmp_path, stdin="Hi")

    assert ended.returncode == 3
    first, *_, last = ended.stderr.splitlines()
    assert "http://127.0.0.1:9" in first
    assert ended.stderr.count("Trying again for up to 1 s; press Ctrl-C to stop.") == 1
    assert "make run" in last
    assert ended.stdout == ""


@pytest.mark.parametrize(
    "line", [["chat", "Hi", "--file", "/absent"], ["chat", "Hi", "--continue"], ["feedback", "turn_1", "ok"], ["dance"]]
)
def test_wrong_usage_ends_with_code_2(tmp_path: Path, line: list[str]) -> None:
    ended = run(*line, state=tmp_path)

    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def test_a_missing_file_is_reported_in_plain_words(tmp_path: Path) -> None:
    ended = run("chat", "Hi", "--file", "/absent", state=tmp_path)

    assert "/absent: No such file or directory.\n" in ended.stderr
    assert "Errno" not in ended.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["chat", "\udcff\udcfe"], r'The command line is not valid UTF-8 near "\xff\xfe". Check the encoding of'),
        (["search", "caf\udce9"], r'near "caf\xe9"'),
        (["rename", "X", "\udcff"], r'near "\xff"'),
        (["archive", "X", "\udcff"], r'near "\xff"'),
        (["--tenant", "\udcff", "list"], r'near "\xff"'),
        (["signal", "event", "--conversation", "X", "--payload", '{"a": "\udcff"}'], r'near "{"a": "\xff"}"'),
        (["signal", "event", "--conversation", "X", "--payload", r'{"a": "\ud800"}'], r'near "{"a": "\ud800"}"'),
        (["chat", "hi", "--file", "b\udcffd.txt"], r'near "b\xffd.txt". Rename the file.'),
    ],
)
def test_an_argument_that_is_not_utf_8_is_rejected(tmp_path: Path, line: list[str], message: str) -> None:
    ended = run(*line, state=tmp_path)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("stdio", ["utf-8:strict", "utf-8:surrogateescape"])
def test_standard_input_that_is_not_utf_8_is_rejected(tmp_path: Path, stdio: str) -> None:
    # In the C locale Python decodes stdin like arguments, in other locales it raises an error.
    ended = run("chat", state=tmp_path, stdin="hi \udcff\n", PYTHONIOENCODING=stdio)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert r'Standard input is not valid UTF-8 near "hi \xff". Convert it to UTF-8, or attach' in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_an_address_that_is_not_utf_8_is_rejected(tmp_path: Path) -> None:
    ended = run("--help", state=tmp_path, EVERTURN_URL="http://h/\udcff", PYTHONIOENCODING="utf-8:strict")

    assert (ended.returncode, ended.stdout) == (2, "")
    message = (
        'This value can\'t be sent. EVERTURN_URL is not valid UTF-8 near "http://h/\\xff". '
        "Check its value and set it again.\n"
    )
    assert ended.stderr == message


@pytest.mark.parametrize("token", ["evk_geh\u00e9im", "evk_geheim\udcff", "evk_ge\rheim", "evk_geheim\x7f"])
def test_an_invalid_token_is_rejected_and_not_shown(tmp_path: Path, token: str) -> None:
    by_option = run("list", "--token", token, state=tmp_path)
    by_variable = run("list", state=tmp_path, EVERTURN_TOKEN=token)

    for ended in (by_option, by_variable):
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "The token contains" in ended.stderr
        assert "evk_" not in ended.stderr and "heim" not in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["geh\u00e9im", "ann\n"])
def test_an_invalid_user_name_is_rejected(tmp_path: Path, name: str) -> None:
    ended = run("list", "--user", name, state=tmp_path)

    assert ended.returncode == 2
    assert "The user name contains" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_closed_standard_input_counts_as_empty(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "EVERTURN_URL": "http://127.0.0.1:9"}
    command = f"{shlex.quote(sys.executable)} -m everturn_client.cli chat --wait 0 <&-"

    ended = subprocess.run(["/bin/sh", "-c", command], env=env, capture_output=True, text=True, timeout=30, check=False)

    assert ended.returncode == 3
    assert "The server could not be reached." in ended.stderr


def test_too_much_standard_input_is_rejected(tmp_path: Path) -> None:
    ended = run("chat", state=tmp_path, stdin="x" * 1_000_001)

    assert ended.returncode == 2
    assert "Attach it as a file" in ended.stderr


def test_without_a_command_the_help_is_printed(tmp_path: Path) -> None:
    ended = run(state=tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert all(name in ended.stdout for name in ("usage: everturn", "chat", "rename", "delete", "--version"))


def test_without_a_command_a_terminal_gets_the_prompt(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "EVERTURN_URL": "http://127.0.0.1:9"}
    command = [sys.executable, "-m", "everturn_client.cli"]

    with subprocess.Popen(command, env=env, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True) as process:
        os.write(ours, b"/quit\n")
        _, err = process.communicate(timeout=30)
    os.close(ours)
    os.close(theirs)

    assert process.returncode == 0
    assert "Type a message" in err


def test_the_version_is_printed(tmp_path: Path) -> None:
    ended = run("--version", state=tmp_path)

    assert (ended.returncode, ended.stdout) == (0, f"everturn {version('everturn-client')}\n")


def test_an_agent_is_made_and_checked_where_the_platform_is_installed(tmp_path: Path) -> None:
    made = run("bundle", "new", "support", "--dir", str(tmp_path), state=tmp_path)
    checked = run("bundle", "check", str(tmp_path / "support"), state=tmp_path)
    (tmp_path / "support" / "bundle.toml").unlink()
    refused = run("bundle", "check", str(tmp_path / "support"), state=tmp_path)

    assert (made.returncode, checked.returncode, refused.returncode) == (0, 0, 1)
    assert f"run: everturn bundle check {tmp_path / 'support'}" in made.stdout
    assert checked.stdout == "support can be used.\n"


def test_help_into_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}

    ended = subprocess.run(
        [sys.executable, "-m", "everturn_client.cli"],
        env=env,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=30,
        check=False,
    )
    os.close(writing)

    assert (ended.returncode, ended.stderr) == (141, b"")
