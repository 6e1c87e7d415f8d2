"""The report on a program's end: its line, the limit it exceeded, and the end of its output."""

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.program import execute
from executor.report import (
    Tail,
    build_program_error,
    find_line,
    limit_of_error,
    limit_of_signal,
    load_kernel_hits,
    remember_program,
)

PROGRAM = "def inner():\n    raise KeyError('k')\n\ndef outer():\n    inner()\n\nouter()\n"


def failure_of(text: str) -> BaseException:
    remember_program(text)
    try:
        exec(compile(text, "program.py", "exec"), {})
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever the text raises is what we look at
        return error
    raise AssertionError("it did not fail")


def test_the_innermost_line_of_the_program_is_named_with_its_text():
    error = build_program_error(failure_of(PROGRAM))

    assert (error.type, error.message, error.line) == ("KeyError", "'k'", 2)
    assert "line 7, in <module>" in error.traceback
    assert "raise KeyError('k')" in error.traceback
    assert __file__ not in error.traceback


def test_a_failure_in_a_library_names_the_line_that_called_it():
    error = build_program_error(failure_of("import json\n\njson.loads('{')\n"))

    assert error.line == 3
    assert "json" in error.traceback


def test_a_syntax_error_has_the_line_where_it_breaks():
    with pytest.raises(SyntaxError) as raised:
        compile("a = 1\nb = (\n", "program.py", "exec")

    assert find_line(raised.value) == 2


def test_endless_recursion_stays_short():
    error = build_program_error(failure_of("def f(): f()\nf()\n"))

    assert error.type == "RecursionError"
    assert len(error.traceback) < 7000


def test_a_huge_message_is_cut():
    error = build_program_error(ValueError("x" * 100_000))

    assert len(error.message) == 2000
    assert len(error.traceback) < 7000


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (MemoryError(), "memory"),
        (OSError(errno.ENOSPC, ""), "disk"),
        (OSError(errno.EFBIG, ""), "file_size"),
        (OSError(errno.EMFILE, ""), "open_files"),
        (BlockingIOError(errno.EAGAIN, ""), "processes"),
        (RuntimeError("can't start new thread"), "processes"),
        (OSError("no number"), None),
        (RuntimeError("else"), None),
        (ValueError(), None),
    ],
)
def test_refusals_of_the_kernel_name_their_limit(error, limit):
    assert limit_of_error(error) == limit


def test_signals_of_limits_are_known():
    assert (limit_of_signal(24), limit_of_signal(25), limit_of_signal(9)) == ("cpu", "file_size", None)


@given(st.lists(st.binary(max_size=30), max_size=30), st.integers(1, 20))
def test_a_tail_is_the_end_of_the_stream_and_stays_small(pieces, size):
    tail = Tail(size)

    for piece in pieces:
        tail.add(piece)

    whole = b"".join(pieces)
    assert tail.data() == whole[-size:]
    assert tail.total_bytes == len(whole)
    assert len(tail._held) <= 2 * size + 30
    assert isinstance(tail.text(), str)


def test_the_executed_program_is_the_one_that_is_shown():
    execute("x = 1", __import__("types").ModuleType("m"))

    assert "1 / 0" in build_program_error(failure_of("1 / 0")).traceback


@pytest.mark.parametrize(
    ("files", "hits"),
    [
        ({}, ()),
        ({"memory.events": "low 0\noom 3\noom_kill 0\n", "pids.events": "max 0\n"}, ()),
        ({"memory.events": "oom_kill 2\n", "pids.events": "max 7\n"}, ("memory", "processes")),
        (
            {"memory/memory.oom_control": "under_oom 0\noom_kill 1\n", "pids/pids.events": "max 1\n"},
            ("memory", "processes"),
        ),
        ({"memory.events": "nonsense\n"}, ()),
    ],
)
def test_the_kernels_counters_show_enforced_limits(tmp_path, files, hits):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert load_kernel_hits(str(tmp_path)) == hits


def test_a_lock_that_can_not_be_made_is_explained():
    names: dict[str, object] = {}
    exec(
        compile("def lock(): raise FileNotFoundError(2, 'No such file')", "/x/multiprocessing/synchronize.py", "exec"),
        names,
    )

    with pytest.raises(FileNotFoundError) as lock:
        names["lock"]()
    with pytest.raises(FileNotFoundError) as other:
        Path("/nowhere").read_bytes()

    assert "use threads or subprocess" in build_program_error(lock.value).message
    assert "use threads" not in build_program_error(other.value).message
    assert "use threads" not in build_program_error(FileNotFoundError()).message
