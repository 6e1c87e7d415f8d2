"""Unified diffs: exact matches, repaired counts, found places, failures with hunk and line."""

import difflib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.workspace.unified_diff import Applied, AppliedHunk, Refused, apply_diff, is_diff

OLD = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"


def applied(old: str, patch: str) -> str:
    result = apply_diff(old, patch)
    assert isinstance(result, Applied), result
    return result.text


def refused(old: str, patch: str) -> Refused:
    result = apply_diff(old, patch)
    assert isinstance(result, Refused), result
    return result


def build_diff(old: str, new: str, context: int = 3) -> str:
    """What `diff -u` writes, with its mark for a missing newline at the end."""
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (old, new))
    lines = difflib.unified_diff(before, after, "a/file", "b/file", n=context)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


LINES = st.sampled_from(
    ["", "a", "b", "c", "-x", "+y", " z", "@@ -1 +1 @@", "--- a", "+++ b", "\u00e9", "\u2028", "\\"]
)
TEXTS = st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r\n"])), max_size=12).map(
    lambda parts: "".join(text + ending for text, ending in parts)
)
ENDS = st.sampled_from(["", "end", "end\r"])


@given(TEXTS, TEXTS, ENDS, ENDS, st.integers(min_value=1, max_value=3))
def test_the_diff_of_two_texts_applied_to_the_first_gives_the_second(old, new, old_end, new_end, context) -> None:
    old, new = old + old_end, new + new_end
    patch = build_diff(old, new, context)

    result = apply_diff(old, patch) if patch else Applied(old, ())

    assert isinstance(result, Applied), result
    assert result.text == new


@given(TEXTS, TEXTS, st.integers(min_value=0, max_value=9), st.integers(min_value=0, max_value=9))
def test_wrong_counts_in_headers_change_nothing(old, new, one, other) -> None:
    patch = build_diff(old, new)
    wrong = re.sub(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@", rf"@@ -\1,{one + 1} +\2,{other} @@", patch, flags=re.M)
    if not patch or "@@ -0,0" in patch or "@@ -1 +1 @@" in old + new:
        return

    assert apply_diff(old, wrong) == apply_diff(old, patch)


@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_is_given_is_applied_or_refused(old, patch) -> None:
    assert isinstance(apply_diff(old, f"@@ -1 +1 @@\n{patch}"), Applied | Refused)


def test_a_hunk_at_its_stated_line() -> None:
    assert applied(OLD, "--- a/x\n+++ b/x\n@@ -2,3 +2,3 @@\n two\n-three\n+3\n four\n") == OLD.replace("three", "3")


def test_a_wrong_start_goes_to_the_nearest_place_that_fits() -> None:
    old = "a\nx\nb\na\nx\nb\na\nx\nb\n"

    result = apply_diff(old, "@@ -6,2 +6,2 @@\n a\n-x\n+y\n")

    assert isinstance(result, Applied)
    assert result.text == "a\nx\nb\na\nx\nb\na\ny\nb\n"
    assert result.hunks == (AppliedHunk(6, 7, 1, 1, moved=True),)


def test_a_hunk_never_goes_before_the_one_before_it() -> None:
    old = "a\nb\na\nb\n"

    assert applied(old, "@@ -3 +3 @@\n-a\n+A\n@@ -1 +1 @@\n-b\n+B\n") == "a\nb\nA\nB\n"
    assert refused("a\nb\nc\n", "@@ -3 +3 @@\n-c\n+C\n@@ -1 +1 @@\n-a\n+A\n").code == "hunk_out_of_order"


def test_a_mismatch_says_which_hunk_and_which_line() -> None:
    patch = "@@ -1 +1 @@\n-one\n+1\n@@ -4,3 +4,3 @@\n four\n-FIVE\n+5\n six\n"

    reported = refused(OLD, patch)

    assert (reported.code, reported.hunk, reported.line, reported.expected, reported.actual) == (
        "hunk_mismatch",
        2,
        5,
        "FIVE",
        "five",
    )


def test_context_must_be_exact_to_the_last_character() -> None:
    reported = refused("a\u00a0b\nc\n", "@@ -1,2 +1,2 @@\n a b\n-c\n+d\n")

    assert (reported.code, reported.expected, reported.actual) == ("hunk_mismatch", "a b", "a\u00a0b")
    assert "look alike" in reported.message


def test_context_past_the_end_of_the_file_is_reported() -> None:
    reported = refused("a\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n")

    assert (reported.line, reported.expected, reported.actual) == (2, "b", None)


def test_line_endings_stay_as_they_are() -> None:
    crlf = OLD.replace("\n", "\r\n")

    assert applied(crlf, "@@ -2,2 +2,3 @@\n two\n-three\n+3\n+3.5\n") == crlf.replace("three", "3\r\n3.5")
    whole = "@@ -2,2 +2,2 @@\r\n two\r\n-three\r\n+3\r\n"
    assert applied(crlf, whole) == crlf.replace("three", "3")
    assert applied(OLD, whole) == OLD.replace("three", "3")


def test_a_missing_final_newline_is_preserved() -> None:
    assert applied("a\nb", "@@ -1,2 +1,3 @@\n a\n b\n+c\n") == "a\nb\nc"
    assert applied("a\nb", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+c\n") == "a\nc\n"
    assert applied("a\nb\n", "@@ -2 +2 @@\n-b\n+c\n\\ No newline at end of file\n") == "a\nc"


def test_empty_lines_count_as_context_and_those_behind_a_hunk_as_nothing() -> None:
    assert applied("a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n\n\n") == "a\n\nc\n"


def test_a_hunk_without_numbers_needs_a_single_place() -> None:
    assert applied(OLD, "@@ @@\n-two\n+2\n") == OLD.replace("two", "2")
    assert applied(OLD, "@@\n-two\n+2\n") == OLD.replace("two", "2")
    assert refused("a\nb\na\n", "@@ @@\n-a\n+c\n").code == "ambiguous_hunk"


def test_lines_can_be_added_without_context() -> None:
    assert applied("", "@@ -0,0 +1,2 @@\n+a\n+b\n") == "a\nb\n"
    assert applied("a\nb\n", "@@ -1,0 +2 @@\n+x\n") == "a\nx\nb\n"
    assert refused("a\n", "@@ -9,0 +10 @@\n+x\n").code == "hunk_mismatch"


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ("--- a\n+++ b\n", "no_hunks"),
        ("@@ nonsense\n-one\n", "invalid_hunk_header"),
        ("@@ -1 +1 @@\n-one\n+1\nstray\n", "invalid_hunk_line"),
        ("@@ -1 +1 @@\n-one\n+1\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-x\n+y\n", "several_files"),
    ],
)
def test_anything_but_a_diff_of_one_file_is_refused(patch: str, code: str) -> None:
    assert refused(OLD, patch).code == code


def test_a_removed_line_that_looks_like_a_file_header_is_a_line() -> None:
    assert applied("-- a\nb\n", "@@ -1,2 +1 @@\n--- a\n b\n") == "b\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--- a\n+++ b\n@@ -1 +1 @@\n", True),
        ("+++ b\n", True),
        ("@@ -1 +1 @@\n", True),
        ("---\ntitle: x\n---\n# Text\n", False),
        ("---\n@@ -1 +1 @@\n", True),
        ("# Title\n--- a\n", False),
        ("", False),
    ],
)
def test_what_is_a_diff_and_what_a_whole_text(text: str, expected: bool) -> None:
    assert is_diff(text) is expected
