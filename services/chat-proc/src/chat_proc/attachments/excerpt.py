"""Extracts the part of a text that a read requests, and labels it exactly.

The text can arrive in pieces of any size: only the requested part is held in memory.
"""

from dataclasses import dataclass

from chat_proc.attachments.charsets import TextDecoder
from everturn.files.objects import Objects

COUNT_CHUNK_CHARS = 4_096
"""Line breaks are counted in pieces of this size, and located one by one only in the last piece, because counting is
a thousand times as fast."""


@dataclass(frozen=True, slots=True)
class Range:
    """What to show: lines (counted from 1), or what begins at a character (counted from 0). None means
    unspecified; `offset` is ignored if lines are specified."""

    line_start: int | None = None
    line_count: int | None = None
    offset: int | None = None

    @property
    def by_lines(self) -> bool:
        return self.line_start is not None or self.line_count is not None

    @property
    def is_whole(self) -> bool:
        return not self.by_lines and not self.offset


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a text of `chars` characters and `lines` lines.

    `label` names the part, such as `lines [1-20]/80`. If there was no room for all of it, `next_offset` or `next_line`
    is where the rest begins. `is_whole` means that `text` is all of the text, without line numbers.
    """

    text: str
    label: str
    chars: int
    lines: int
    next_offset: int | None = None
    next_line: int | None = None
    is_whole: bool = False


def cut_excerpt(text: str, wanted: Range, max_chars: int) -> Excerpt:
    """The requested part, at most `max_chars` characters of it. Lines requested by number are prefixed with their
    number."""
    cutter = start_cutter(wanted, max_chars)
    cutter.feed(text)
    return cutter.finish()


def start_cutter(wanted: Range, max_chars: int) -> "LineCutter | CharCutter":
    """A cutter that is fed the text piece by piece."""
    if wanted.by_lines:
        return LineCutter(wanted.line_start or 1, wanted.line_count, max_chars)
    return CharCutter(wanted.offset or 0, max_chars)


class _Counter:
    """Counts the text fed so far."""

    def __init__(self) -> None:
        self.chars = 0
        self._breaks = 0
        self._last = ""

    def count(self, text: str) -> None:
        self.chars += len(text)
        self._breaks += text.count("\n")
        self._last = text[-1:] or self._last

    @property
    def lines(self) -> int:
        return self._breaks + (1 if self._last not in ("", "\n") else 0)


class CharCutter:
    """Cuts by characters. Ends at a line break if the second half has one, so that whole lines are shown."""

    def __init__(self, start: int, max_chars: int) -> None:
        self._start = start
        self._max_chars = max_chars
        self._counter = _Counter()
        self._window: list[str] = []

    def feed(self, text: str) -> None:
        before = self._counter.chars
        self._counter.count(text)
        first, end = max(0, self._start - before), self._start + self._max_chars - before
        if first < len(text) and end > 0:
            self._window.append(text[first:end])

    def finish(self) -> Excerpt:
        chars, window = self._counter.chars, "".join(self._window)
        start = min(self._start, chars)
        if start + len(window) < chars:
            newline = window.rfind("\n", self._max_chars // 2)
            window = window[: newline + 1] if newline >= 0 else window
        end = start + len(window)
        label = f"characters [{start}-{end}]/{chars}"
        if start == 0:
            label = f"{self._lines_label(window)}, {label}"
        following = end if end < chars else None
        is_whole = len(window) == chars
        return Excerpt(window, label, chars, self._counter.lines, next_offset=following, is_whole=is_whole)

    def _lines_label(self, window: str) -> str:
        total = self._counter.lines
        if len(window) == self._counter.chars:
            return f"lines [{min(1, total)}-{total}]/{total}"
        cut = "" if window.endswith("\n") else " and part of the next"
        return f"lines [{min(1, total)}-{window.count(chr(10))}]/{total}{cut}"


class LineCutter:
    """Cuts by lines, each prefixed with its number."""

    def __init__(self, first: int, count: int | None, max_chars: int) -> None:
        self._first = first
        self._end = None if count is None else first + count
        self._left = max_chars
        self._counter = _Counter()
        self._number = 1
        self._line: list[str] = []
        self._line_chars = 0
        self._shown: list[str] = []
        self._cut = ""
        self._full = False

    def feed(self, text: str) -> None:
        self._counter.count(text)
        position = self._skip(text)
        while position < len(text) and not self._full and not self._is_past:
            newline = text.find("\n", position)
            self._keep(text, position, len(text) if newline < 0 else newline)
            if newline < 0:
                return
            self._end_line()
            position = newline + 1

    def finish(self) -> Excerpt:
        if self._line_chars and not self._full and not self._is_past:
            self._end_line()
        lines, last = self._counter.lines, self._first + len(self._shown) - 1
        if self._shown:
            label = f"lines [{self._first}-{last}]/{lines}{self._cut}"
        else:
            label = f"nothing, because there is no line {self._first}: the last line is {lines}"
        following = last + 1 if self._full and not self._cut else None
        return Excerpt("\n".join(self._shown), label, self._counter.chars, lines, next_line=following)

    @property
    def _is_past(self) -> bool:
        return self._end is not None and self._number >= self._end

    def _skip(self, text: str) -> int:
        """Where the first requested line begins or continues; the length of the text if it is not in it."""
        breaks = self._first - self._number
        if breaks <= 0:
            return 0
        there = text.count("\n")
        if there < breaks:
            self._number += there
            return len(text)
        self._number = self._first
        position = 0
        while (there := text.count("\n", position, position + COUNT_CHUNK_CHARS)) < breaks:
            breaks -= there
            position += COUNT_CHUNK_CHARS
        for _ in range(breaks):
            position = text.index("\n", position) + 1
        return position

    def _keep(self, text: str, start: int, end: int) -> None:
        """Keep the part for which there is room, however long the line is."""
        room = self._left - self._line_chars
        if room > 0 and end > start:
            self._line.append(text[start : min(end, start + room)])
        self._line_chars += end - start

    def _end_line(self) -> None:
        line = f"{self._number}: {''.join(self._line)}"
        if len(f"{self._number}: ") + self._line_chars + 1 > self._left:
            if not self._shown:
                self._shown.append(line[: self._left])
                self._cut = ", cut in the middle of its line"
            self._full = True
            return
        self._shown.append(line)
        self._left -= len(line) + 1
        self._number += 1
        self._line, self._line_chars = [], 0


async def load_excerpt(
    objects: Objects, key: str, size: int, wanted: Range, max_chars: int, *, mime: str = "text/plain"
) -> Excerpt:
    """The requested part of an object of `size` bytes, in the encoding of its type. Invalid bytes become U+FFFD. Raises
    NotFound, Unavailable.

    The whole object is read, because its lines have to be counted.

    Only the requested part and one chunk are in memory.
    """
    cutter = start_cutter(wanted, max_chars)
    decoder = TextDecoder(mime)
    async for chunk in objects.load_range(key, start=0, end=size):
        cutter.feed(decoder.decode(chunk))
    cutter.feed(decoder.decode(b"", final=True))
    return cutter.finish()
