"""Running a program's text; limits, streams and environment are tried on the real sandbox."""

import sys
import types

import pytest

from executor.program import execute


def run(text: str) -> tuple[int, str | None, dict[str, object]]:
    module = types.ModuleType("__main__")
    exit_code, error = execute(text, module)
    return exit_code, error and error.type, module.__dict__


def test_a_program_runs_in_its_module():
    exit_code, error, names = run("x = 1\nassert __name__ == '__main__'")

    assert (exit_code, error, names["x"]) == (0, None, 1)


def test_top_level_await_runs_in_a_loop():
    exit_code, error, names = run("import asyncio\nx = await asyncio.sleep(0, 7)")

    assert (exit_code, error, names["x"]) == (0, None, 7)


def test_without_await_there_is_no_loop_yet():
    exit_code, error, names = run("import asyncio\nasync def f(): return 8\nx = asyncio.run(f())")

    assert (exit_code, error, names["x"]) == (0, None, 8)


@pytest.mark.parametrize(
    ("text", "exit_code", "error"),
    [
        ("raise SystemExit", 0, None),
        ("raise SystemExit(0)", 0, None),
        ("raise SystemExit(3)", 3, None),
        ("raise SystemExit(259)", 3, None),
        ("raise SystemExit('why')", 1, None),
        ("1/0", 1, "ZeroDivisionError"),
        ("await f()", 1, "NameError"),
        ("if x\n", 1, "SyntaxError"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
        ("x = '\ud800'", 1, "UnicodeEncodeError"),
        ("a\0b", 1, "SyntaxError"),
        ("class E(BaseException): pass\nraise E", 1, "E"),
    ],
)
def test_every_end_has_a_code_and_a_failure_a_name(text, exit_code, error, capsys):
    if error == "SyntaxError" and "\0" in text and sys.version_info < (3, 11, 4):
        error = "ValueError"

    assert run(text)[:2] == (exit_code, error)


def test_the_failure_is_also_on_the_error_stream(capsys):
    run("raise ValueError('seen')")

    assert "ValueError: seen" in capsys.readouterr().err
