"""Searches the lines of one text, and matches names with patterns. Pure except for the clock that limits it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import re2

from everturn.core.errors import Invalid

MAX_PATTERN_CHARS = 1_000
MAX_MEMORY_BYTES = 8 * 1024 * 1024
"""Memory limit of one compiled expression; a larger one is refused."""

MAX_PREVIEW_CHARS = 240
_BEFORE_MATCH_CHARS = 60
_LINES_BETWEEN_CHECKS = 500
"""Lines searched between two checks of the clock."""


class Pattern:
    """A compiled expression. Searching releases the GIL. RE2 takes linear time in the length of the text for any
    expression."""

    def __init__(self, text: str) -> None:
        """Raises Invalid, with the reason, if `text` is not a valid RE2 expression."""
        library = cast(Any, re2)
        options = library.Options()
        options.max_mem = MAX_MEMORY_BYTES
        options.log_errors = False
        if len(text) > MAX_PATTERN_CHARS:
            raise Invalid(f"A regular expression can have at most {MAX_PATTERN_CHARS} characters.")
        try:
            self._compiled = library.compile(text, options)
        except (library.error, UnicodeEncodeError) as error:
            raise Invalid(
                f"{text[:80]!a} is not a valid regular expression: {_reason(error)}. "
                "The syntax is RE2: like Python's, without look-around and back-references."
            ) from error

    def find(self, text: str) -> tuple[int, int] | None:
        """The start and end of the first match, in characters."""
        match = self._compiled.search(text)
        return None if match is None else cast("tuple[int, int]", match.span())


def _reason(error: Exception) -> str:
    first = error.args[0] if error.args else str(error)
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)


@dataclass(frozen=True, slots=True)
class Match:
    """A line that matches. `line` counts from 1; `preview` is the line or the part around the match."""

    line: int
    preview: str
    context: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Searched:
    """The matches in a text. `stopped` means that the time was up; `more` that there are matches beyond the limit."""

    matches: tuple[Match, ...]
    line_count: int
    more: bool = False
    stopped: bool = False


def search_text(
    text: str, pattern: Pattern, *, context_lines: int, max_matches: int, is_late: Callable[[], bool]
) -> Searched:
    """The first matching lines, each with the lines around it."""
    lines = split_lines(text)
    matches: list[Match] = []
    for index, line in enumerate(lines):
        if index % _LINES_BETWEEN_CHECKS == 0 and is_late():
            return Searched(tuple(matches), len(lines), stopped=True)
        span = pattern.find(line)
        if span is None:
            continue
        if len(matches) >= max_matches:
            return Searched(tuple(matches), len(lines), more=True)
        matches.append(Match(index + 1, _preview(line, span[0]), _context(lines, index, context_lines)))
    return Searched(tuple(matches), len(lines))


def split_lines(text: str) -> list[str]:
    """Lines without their endings, counted as in a read: a break at the end begins no further line."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _context(lines: list[str], index: int, count: int) -> tuple[tuple[int, str], ...]:
    around = range(max(0, index - count), min(len(lines), index + count + 1))
    return tuple((at + 1, lines[at][:MAX_PREVIEW_CHARS]) for at in around if at != index)


def _preview(line: str, start: int) -> str:
    if len(line) <= MAX_PREVIEW_CHARS:
        return line
    begin = max(0, min(start - _BEFORE_MATCH_CHARS, len(line) - MAX_PREVIEW_CHARS))
    part = line[begin : begin + MAX_PREVIEW_CHARS]
    return f"{'...' if begin else ''}{part}{'...' if begin + len(part) < len(line) else ''}"
