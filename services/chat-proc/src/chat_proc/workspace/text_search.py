"""Searches the lines of one text. Pure but for the clock that limits it."""

from collections.abc import Callable
from dataclasses import dataclass

from chat_proc.workspace.patterns import Pattern

MAX_PREVIEW_CHARS = 240
_BEFORE_MATCH_CHARS = 60
_LINES_BETWEEN_LOOKS = 500
"""Lines that are searched before the clock is looked at again."""


@dataclass(frozen=True, slots=True)
class Match:
    """A line that matches. `line` counts from 1; `preview` is the line or the part around the match."""

    line: int
    preview: str
    context: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Searched:
    """What a text gave. `stopped` says that its time was up; `more` that there are matches beyond the limit."""

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
        if index % _LINES_BETWEEN_LOOKS == 0 and is_late():
            return Searched(tuple(matches), len(lines), stopped=True)
        span = pattern.find(line)
        if span is None:
            continue
        if len(matches) >= max_matches:
            return Searched(tuple(matches), len(lines), more=True)
        matches.append(Match(index + 1, _preview(line, span[0]), _context(lines, index, context_lines)))
    return Searched(tuple(matches), len(lines))


def split_lines(text: str) -> list[str]:
    """Lines without their endings, counted as a read counts them: a break at the end begins no further line."""
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
