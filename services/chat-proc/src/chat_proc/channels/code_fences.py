"""Tracks whether text is inside a Markdown code fence, line by line and within a growing line."""

import re
from typing import Literal

_MAX_HEAD_CHARS = 64
_HEAD_START = frozenset(" \t>`~-*+0123456789")
_OPENER_BEGINNING = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)]?)?[ \t]*(?:`+|~+)?")
_OPENER = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})")
_CLOSER = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t\r]*")

_Line = Literal["undecided", "ordinary", "opens"]
"""The state of the growing line."""


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
        is_long = len(self._head) > _MAX_HEAD_CHARS
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
    if found is None or found.end() > _MAX_HEAD_CHARS or (found[1][0] == "`" and "`" in line[found.end() :]):
        return ""
    return found[1]
