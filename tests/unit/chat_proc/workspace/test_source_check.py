"""Does it parse."""

import pytest

from chat_proc.workspace.unified_diff import MAX_CHECKED_BYTES, find_syntax_problem


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("a.py", b"x = 1\n", None),
        ("a.py", b"x = 1\ndef f(:\n", "line 2"),
        ("a.py", b"x = '\x00'", "null"),
        ("a.json", b'{"a": [1]}', None),
        ("a.json", b'{"a": }', "line 1"),
        ("a.md", b"def f(:", None),
        ("a.py", b"(" * 10 + b" " * MAX_CHECKED_BYTES, None),
    ],
)
async def test_python_and_json_are_checked_and_nothing_else(name: str, data: bytes, problem: str | None) -> None:
    found = await find_syntax_problem(name, data)

    assert (found is None) if problem is None else problem in (found or "")


@pytest.mark.parametrize(("name", "data"), [("a.py", b"-" * 200_000 + b"1"), ("a.json", b"[" * 200_000)])
async def test_a_deeply_nested_text_is_harmless(name: str, data: bytes) -> None:
    assert await find_syntax_problem(name, data)
