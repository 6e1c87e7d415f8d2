"""Applies a unified diff to one text exactly, or reports the failing line and the reason.

Headers are not trusted: counts are derived from the lines of a hunk, and a hunk whose context is not at the stated line
is applied at the nearest place after the previous hunk where all of its context matches exactly.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from everturn.core.subprocesses import run_command

_HEADER = re.compile(r"@@+(?: -(\d{1,9})(?:,(\d{1,9}))?)?(?: \+\d{1,9}(?:,\d{1,9})?)? ?(?:@@.*)?", re.DOTALL)
_NO_NEWLINE = "\\"
_SHOWN_CHARS = 300

MAX_SEARCHED_LINES = 5_000_000
"""Total lines searched for all hunks whose headers state no line or a wrong one. About a second; 50 such hunks in a
file of 100,000 lines."""

RefusalCode = Literal["no_hunks", "invalid_hunk_header", "invalid_hunk_line", "several_files", "hunk_mismatch",
                      "hunk_out_of_order", "ambiguous_hunk", "too_many_searches"]  # fmt: skip

_ALIKE = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-"})

_NUMBERED = re.compile(r"[ \t]*(\d{1,7})(?:: ?|[ \t]*\| ?|\t)(.*)", re.DOTALL)
MIN_SHARE = 0.35
MIN_LINES = 2
MANY_LINES = 5

MAX_CHECKED_BYTES = 512 * 1024
LIMIT_S = 5.0
_PARSE = """
import ast, sys
try:
    ast.parse(sys.stdin.buffer.read(), "file")
except SyntaxError as error:
    print(f"line {error.lineno}: {error.msg}")
except Exception as error:
    print(type(error).__name__, error)
"""
"""Run in a process of its own: deeply nested text can crash a parser."""


@dataclass(frozen=True, slots=True)
class AppliedHunk:
    """Where a hunk was applied. Lines count from 1 in the old text; `stated` is None if its header named none.

    `moved` means that it was not applied at the line in its header.
    """

    stated: int | None
    line: int
    added: int
    removed: int
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Applied:
    """The new text."""

    text: str
    hunks: tuple[AppliedHunk, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why nothing was applied. `hunk` counts from 1, `line` is the old text's; `actual` is None past its end."""

    code: RefusalCode
    message: str
    hunk: int | None = None
    line: int | None = None
    expected: str | None = None
    actual: str | None = None


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a hunk. `sign` is a blank, `-` or `+`; `ends` is False if no newline follows it in the file."""

    sign: str
    text: str
    ends: bool = True
    bare: bool = False


@dataclass(frozen=True, slots=True)
class _Hunk:
    """`stated` is the header's old line, `empty` whether the header states that no old line is changed."""

    stated: int | None
    empty: bool
    lines: tuple[_Line, ...]

    @property
    def old(self) -> list[str]:
        return [_body(line.text) for line in self.lines if line.sign != "+"]

    @property
    def start(self) -> int | None:
        """The index of the first old line, or of the place of insertion."""
        if self.stated is None:
            return None
        return self.stated if self.empty and not self.old else max(0, self.stated - 1)


def is_diff(text: str) -> bool:
    """Whether a patch is a unified diff rather than a complete new text. Front matter is not a diff."""
    if not text.startswith(("---", "+++", "@@")):
        return False
    return text.split("\n", 1)[0].strip() != "---" or re.search(r"^@@", text, re.MULTILINE) is not None


def apply_diff(old: str, patch: str) -> Applied | Refused:
    """Return the text with all hunks applied, or why one of them can't be."""
    hunks = _parse(patch)
    if isinstance(hunks, Refused):
        return hunks
    exact = any(line.text.endswith("\r") for hunk in hunks for line in hunk.lines)
    lines = _split(old)
    file = _File([_body(line) for line in lines])
    parts: list[str] = []
    applied: list[AppliedHunk] = []
    cursor = 0
    for number, wanted in enumerate(hunks, start=1):
        placed = _place(wanted, file, cursor, number)
        if isinstance(placed, Refused):
            return placed
        at, hunk = placed
        parts += lines[cursor:at]
        _append_hunk(parts, hunk, lines, at, exact=exact)
        cursor = at + len(hunk.old)
        added, removed = (sum(line.sign == sign for line in hunk.lines) for sign in "+-")
        applied.append(AppliedHunk(hunk.stated, at + 1, added, removed, moved=hunk.start not in (None, at)))
    touches_end = cursor == len(lines)
    marked = any(not line.ends for line in hunks[-1].lines)
    parts += lines[cursor:]
    return Applied(_join(parts, keep_open_end=touches_end and not marked and _is_open(old)), tuple(applied))


def _parse(patch: str) -> tuple[_Hunk, ...] | Refused:
    lines = patch.split("\n")
    if lines[-1] == "":
        lines.pop()
    if all(line.endswith("\r") for line in lines):
        lines = [line[:-1] for line in lines]
    hunks: list[_Hunk] = []
    read: list[_Line] = []
    for index, line in enumerate(lines):
        if line.startswith("@@"):
            header = _HEADER.fullmatch(line)
            if header is None:
                message = "A hunk begins with @@ -<line>,<count> +<line>,<count> @@."
                return Refused("invalid_hunk_header", message, hunk=len(hunks) + 1, actual=line[:_SHOWN_CHARS])
            stated = None if header[1] is None else int(header[1])
            hunks[-1:] = [replace(hunk, lines=tuple(read)) for hunk in hunks[-1:]]
            hunks.append(_Hunk(stated, header[2] == "0" or stated == 0, ()))
            read = []
        elif hunks and _begins_file(lines[index : index + 3]):
            return Refused("several_files", "A patch changes one file. Send one call for each file.")
        elif hunks and not _read_line(line, read):
            message = "A line of a hunk begins with a blank (context), - (removed) or + (added)."
            return Refused("invalid_hunk_line", message, hunk=len(hunks), actual=line[:_SHOWN_CHARS])
    if not hunks:
        return Refused("no_hunks", "The diff has no hunk: no line begins with @@.")
    return (*hunks[:-1], replace(hunks[-1], lines=tuple(read)))


def _begins_file(lines: Sequence[str]) -> bool:
    signs = ("--- ", "+++ ", "@@")
    return len(lines) == len(signs) and all(line.startswith(sign) for line, sign in zip(lines, signs, strict=True))


def _read_line(line: str, read: list[_Line]) -> bool:
    """Append a line to its hunk; returns False if it is not a hunk line."""
    if line.startswith(_NO_NEWLINE):
        read[-1:] = [replace(each, ends=False) for each in read[-1:]]
    elif line in ("", "\r"):
        read.append(_Line(" ", line, bare=True))
    elif line[0] in " -+":
        read.append(_Line(line[0], line[1:]))
    else:
        return False
    return True


class _SearchedTooMuch(Exception):
    """The search for all hunks exceeds the limit of lines."""


@dataclass(slots=True)
class _File:
    """The lines of the old text without their endings, and the number of lines searched for hunks."""

    bodies: Sequence[str]
    searched_lines: int = 0

    def find(self, old: Sequence[str], first: int, end: int) -> Iterator[int]:
        """The places from line `first` to before line `end` where all of the non-empty `old` matches.

        By Knuth, Morris and Pratt: linear time, even if many lines are equal.
        """
        self.searched_lines += max(0, end - first)
        if self.searched_lines > MAX_SEARCHED_LINES:
            raise _SearchedTooMuch
        borders = [0] * len(old)
        matched = 0
        for index in range(1, len(old)):
            while matched and old[index] != old[matched]:
                matched = borders[matched - 1]
            matched += old[index] == old[matched]
            borders[index] = matched
        matched = 0
        for at in range(first, end):
            while matched and self.bodies[at] != old[matched]:
                matched = borders[matched - 1]
            matched += self.bodies[at] == old[matched]
            if matched == len(old):
                yield at - len(old) + 1
                matched = borders[-1]


def _place(hunk: _Hunk, file: _File, cursor: int, number: int) -> tuple[int, _Hunk] | Refused:
    """The place of the hunk, and the hunk as applied: trailing empty lines may not be part of it."""
    end = len(hunk.lines)
    while end and hunk.lines[end - 1].bare:
        end -= 1
    trimmed = replace(hunk, lines=hunk.lines[:end])
    for candidate in (hunk, trimmed) if trimmed != hunk else (hunk,):
        try:
            places = _find_places(candidate, file, cursor)
        except _SearchedTooMuch:
            message = (
                "Too many hunks name no line or a wrong one. State the lines, or change the file in several calls."
            )
            return Refused("too_many_searches", message, hunk=number)
        if candidate.stated is None and len(places) > 1:
            message = "The hunk names no line and matches in several places. State its line or add context."
            return Refused("ambiguous_hunk", message, hunk=number, line=places[0] + 1)
        if places:
            return places[0], candidate
    if trimmed.old and any(True for _ in _File(file.bodies).find(trimmed.old, 0, cursor)):
        message = "The hunk matches only before or inside the previous hunk. Put hunks in the order of the file."
        return Refused("hunk_out_of_order", message, hunk=number)
    return _describe_mismatch(trimmed, file.bodies, cursor, number)


def _find_places(hunk: _Hunk, file: _File, cursor: int) -> list[int]:
    """The places from `cursor` on where all of the hunk's old lines match: the stated one, otherwise the nearest
    first."""
    old, start, bodies = hunk.old, hunk.start, file.bodies
    if not old:
        return [start] if start is not None and cursor <= start <= len(bodies) else []
    if start is not None and start >= cursor and list(bodies[start : start + len(old)]) == old:
        return [start]
    return sorted(file.find(old, cursor, len(bodies)), key=lambda at: abs(at - (start or 0)))


def _describe_mismatch(hunk: _Hunk, bodies: Sequence[str], cursor: int, number: int) -> Refused:
    old = hunk.old
    if not old:
        message = f"The hunk adds lines after line {hunk.stated}, which does not exist or is before the previous hunk."
        return Refused("hunk_mismatch", message, hunk=number, line=len(bodies))
    wanted = max(cursor, hunk.start or 0)
    begins = [at for at in range(cursor, len(bodies)) if bodies[at] == old[0]]
    at = min(begins, key=lambda place: abs(place - wanted)) if begins else min(wanted, len(bodies))
    n = next(n for n, text in enumerate(old) if at + n >= len(bodies) or bodies[at + n] != text)
    actual = bodies[at + n] if at + n < len(bodies) else None
    hint = ""
    if actual is not None and _flat(actual) == _flat(old[n]):
        hint = " They differ only in whitespace or in characters that look alike."
    message = f"Hunk {number} does not match: its context must match the file exactly.{hint}"
    expected = old[n][:_SHOWN_CHARS]
    shown = None if actual is None else actual[:_SHOWN_CHARS]
    return Refused("hunk_mismatch", message, number, at + n + 1, expected, shown)


def _flat(text: str) -> str:
    return "".join(text.translate(_ALIKE).split())


def _append_hunk(parts: list[str], hunk: _Hunk, lines: Sequence[str], at: int, *, exact: bool) -> None:
    """`at` is the index of the hunk's first old line; kept lines are copied byte by byte."""
    for line in hunk.lines:
        if line.sign == " ":
            parts.append(lines[at])
        if line.sign in " -":
            at += 1
        else:
            ending = "" if not line.ends else "\n" if exact else _ending_near(parts, lines, at)
            parts.append(line.text + ending)


def _ending_near(parts: Sequence[str], lines: Sequence[str], at: int) -> str:
    """The line ending of the previous line, otherwise of the next line."""
    for near in (*parts[-1:], *lines[max(0, at - 1) : at + 1]):
        if near.endswith("\n"):
            return "\r\n" if near.endswith("\r\n") else "\n"
    return "\n"


def _join(parts: list[str], *, keep_open_end: bool) -> str:
    for index in range(len(parts) - 1):
        if not parts[index].endswith("\n"):
            parts[index] += _ending_near(parts[max(0, index - 1) : index], parts, index + 1)
    text = "".join(parts)
    if keep_open_end and text.endswith("\n"):
        return text.removesuffix("\n").removesuffix("\r")
    return text


def _is_open(text: str) -> bool:
    return bool(text) and not text.endswith("\n")


def _split(text: str) -> list[str]:
    """Lines with their endings; only \\n ends a line."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _body(line: str) -> str:
    """A line without its ending."""
    return line.removesuffix("\n").removesuffix("\r")


def has_preview_numbers(patch: str, current: str, *, is_diff: bool) -> bool:
    """Whether lines of the patch are lines of the current text prefixed with numbers that the text does not have.

    Two such lines are enough if they are a third of all, otherwise five.
    """
    lines = patch.split("\n")
    if is_diff:
        lines = [line[1:] for line in lines if line[:1] in (" ", "-", "+") and line[:3] not in ("---", "+++")]
    own = current.split("\n")
    as_they_are = set(own)
    numbered = [match for line in lines if line not in as_they_are and (match := _NUMBERED.fullmatch(line))]
    copied = any(_is_line(own, int(match[1]), match[2]) for match in numbered)
    share = len(numbered) / max(1, len([line for line in lines if line.strip()]))
    enough = len(numbered) >= MANY_LINES or (len(numbered) >= MIN_LINES and share >= MIN_SHARE)
    return copied and enough


def _is_line(lines: list[str], number: int, text: str) -> bool:
    return 0 < number <= len(lines) and bool(text.strip()) and lines[number - 1].rstrip("\r") == text.rstrip("\r")


async def find_syntax_problem(name: str, data: bytes) -> str | None:
    """The syntax error of a .py or .json file, in one line; None if there is none, or for other and very large
    files."""
    if len(data) > MAX_CHECKED_BYTES:
        return None
    if name.endswith(".py"):
        return await _check_python(data)
    return _check_json(data) if name.endswith(".json") else None


def _check_json(data: bytes) -> str | None:
    try:
        json.loads(data)
    except (ValueError, RecursionError) as error:
        return str(error)
    return None


async def _check_python(data: bytes) -> str | None:
    try:
        status, said, _ = await run_command((sys.executable, "-I", "-S", "-c", _PARSE), data, timeout_s=LIMIT_S)
    except TimeoutError:
        return f"it could not be parsed within {LIMIT_S:g} s"
    if status:
        return "it is nested too deeply to be parsed"
    return said.decode("utf-8", "replace").strip()[:300] or None
