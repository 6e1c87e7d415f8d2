"""Finds the code in the Markdown of a reply, whole or in pieces: code fences, and inline code."""

import re
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Literal, NamedTuple

MAX_HEAD_CHARS = 64
"""A line is no beginning of a fence if its fence ends after so many characters."""
_HEAD_START = frozenset(" \t>`~-*+0123456789")
_OPENER_BEGINNING = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)]?)?[ \t]*(?:`+|~+)?")
_OPENER = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})")
_CLOSER = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t\r]*")

_Line = Literal["undecided", "ordinary", "opens"]
"""The state of the growing line."""

_MARK = re.compile("[`~]")
_BACKTICKS = re.compile("`+")
MAX_INLINE_CHARS = 256
"""Inline code that is longer is text: what follows a backtick is held back only so long."""

SpanKind = Literal["text", "inline", "fence"]


class Span(NamedTuple):
    """A part of a text that is inline code, a part of a code fence, or neither."""

    text: str
    kind: SpanKind


class CodeSplitter:
    """Splits a text that arrives in pieces, by `feed` and then `finish`.

    Inline code ends on its line; a backtick without a partner is text. A fence that is not closed
    goes on to the end. The beginning of a line that may be one of a fence is held back, and so is inline code.
    """

    def __init__(self) -> None:
        self._fence = ""
        self._held = ""
        self._at_line_start = True

    @property
    def in_fence(self) -> bool:
        """Whether the lines so far end inside a fence."""
        return bool(self._fence)

    def feed(self, text: str) -> list[Span]:
        """Return the spans that are certain now."""
        return list(self._split(self._held + text, is_last=False))

    def finish(self) -> list[Span]:
        """Return what was held back."""
        return list(self._split(self._held, is_last=True))

    def _split(self, text: str, *, is_last: bool) -> Iterator[Span]:
        self._held = ""
        position = 0
        while position < len(text):
            mark = _MARK.search(text, position)
            if plain := text[position : text.rfind("\n", position, mark.start() if mark else len(text)) + 1]:
                yield Span(plain, "fence" if self._fence else "text")
                position += len(plain)
                self._at_line_start = True
                continue
            end = text.find("\n", position) + 1 or len(text)
            line, position = text[position:end], end
            is_whole = is_last or line[-1] == "\n"
            if self._at_line_start and not is_whole and self._may_be_fence(line):
                self._held = line
                return
            yield from self._split_line(line, is_whole=is_whole)
            self._at_line_start = line[-1] == "\n"

    def _may_be_fence(self, line: str) -> bool:
        if len(line) > MAX_INLINE_CHARS:
            return False
        if self._fence:
            return not line.strip(" \t\r>`~")
        head = len(line) <= MAX_HEAD_CHARS and _OPENER_BEGINNING.fullmatch(line) is not None
        return head or bool(_opened_fence(line))

    def _split_line(self, line: str, *, is_whole: bool) -> Iterator[Span]:
        if self._fence:
            closer = _CLOSER.fullmatch(line.rstrip("\n")) if self._at_line_start else None
            if closer is None or not closer[1].startswith(self._fence):
                yield Span(line, "fence")
                return
            self._fence = ""
            yield Span(line.rstrip("\n"), "fence")
            if line[-1] == "\n":
                yield Span("\n", "text")
        elif self._at_line_start and (fence := _opened_fence(line)):
            self._fence = fence
            yield Span(line, "fence")
        else:
            yield from self._split_inline(line, is_whole=is_whole)

    def _split_inline(self, line: str, *, is_whole: bool) -> Iterator[Span]:
        begin = position = 0
        while run := _BACKTICKS.search(line, position):
            limit = run.start() + MAX_INLINE_CHARS
            others = _BACKTICKS.finditer(line, run.end(), limit)
            partner = next((other.end() for other in others if len(other[0]) == len(run[0])), None)
            if len(line) < limit and not is_whole and (partner is None or partner == len(line)):
                self._held = line[run.start() :]
                line = line[: run.start()]
                break
            position = partner or run.end()
            if partner is not None:
                if run.start() > begin:
                    yield Span(line[begin : run.start()], "text")
                yield Span(line[run.start() : partner], "inline")
                begin = partner
        if len(line) > begin:
            yield Span(line[begin:], "text")


def split_code(text: str) -> list[Span]:
    """The spans of a whole text; each fence is one."""
    splitter = CodeSplitter()
    spans = (*splitter.feed(text), *splitter.finish())
    runs = [list(run) for _, run in groupby(spans, attrgetter("kind"))]
    return [Span("".join(span.text for span in run), run[0].kind) for run in runs]


class FenceTracker:
    """Reads text through `advance`; `inside` is the state at its end. A fence can be in a list item or a quote."""

    __slots__ = ("_fence", "_head", "_line")

    def __init__(self) -> None:
        self._fence = ""
        self._line: _Line = "undecided"
        self._head = ""

    @property
    def inside(self) -> bool:
        """Whether text at this position is code: between two fence lines, or on the first of them."""
        if self._fence or self._line == "opens":
            return True
        return self._line == "undecided" and bool(_opened_fence(self._head))

    def try_skip(self, text: str) -> bool:
        """Read more text if no part of it can be code, which is fast; otherwise read nothing and return False."""
        if self._line != "ordinary" or self._fence or "```" in text or "~~~" in text:
            return False
        last_break = text.rfind("\n")
        if last_break >= 0:
            self._line = "undecided"
            self._grow_line(text[last_break + 1 :])
        return True

    def advance(self, text: str) -> None:
        """Read more text."""
        if "\n" not in text:
            self._grow_line(text)
        else:
            first, *others = text.split("\n")
            self._grow_line(first)
            for line in others:
                self._end_line()
                self._grow_line(line)

    def _grow_line(self, text: str) -> None:
        if self._line == "ordinary" or not text:
            return
        if not self._head and text[0] not in _HEAD_START:
            self._line = "ordinary"
            return
        self._head += text
        # Checked before the pattern, which would backtrack over a long run of blanks.
        is_long = len(self._head) > MAX_HEAD_CHARS
        if self._fence:
            if is_long:
                self._decide("ordinary", "")
        elif self._line == "opens" or is_long or _OPENER_BEGINNING.fullmatch(self._head) is None:
            self._decide_opener()

    def _decide_opener(self) -> None:
        """Only a later backtick in the line can still invalidate an opening fence, so the info string need not be
        kept."""
        fence = _opened_fence(self._head)
        if fence:
            self._decide("opens", f"{fence} ")
        else:
            self._decide("ordinary", "")

    def _decide(self, line: _Line, head: str) -> None:
        self._line = line
        self._head = head

    def _end_line(self) -> None:
        if self._line == "ordinary":
            self._line = "undecided"
            return
        if self._fence:
            closer = _CLOSER.fullmatch(self._head)
            if closer and closer[1].startswith(self._fence):
                self._fence = ""
        else:
            self._fence = _opened_fence(self._head)
        self._decide("undecided", "")


def _opened_fence(line: str) -> str:
    """The fence that this line opens, or nothing; a line such as ```` ```x``` ```` is inline code."""
    found = _OPENER.match(line)
    if found is None or found.end() > MAX_HEAD_CHARS or (found[1][0] == "`" and "`" in line[found.end() :]):
        return ""
    return found[1]
