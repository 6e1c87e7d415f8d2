"""Tells, line by line and while a line is still growing, whether text stands inside a Markdown code fence."""

import re
from enum import Enum

_MAX_HEAD_CHARS = 64
_OPENER_BEGINNING = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)]?)?[ \t]*(?:`+|~+)?")
_OPENER = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})")
_CLOSER = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t\r]*")


class _Line(Enum):
    """What is known of the line that is growing."""

    UNDECIDED = 0
    ORDINARY = 1
    OPENS = 2


class FenceTracker:
    """Reads text through `advance`; `inside` is the state at its end. A fence may stand in a list item or a quote."""

    __slots__ = ("_fence", "_head", "_line")

    def __init__(self) -> None:
        self._fence = ""
        self._line = _Line.UNDECIDED
        self._head = ""

    @property
    def inside(self) -> bool:
        """Whether text at this place is code: between two fence lines, or on the first of them."""
        if self._fence or self._line is _Line.OPENS:
            return True
        return self._line is _Line.UNDECIDED and bool(_opened_fence(self._head))

    def advance(self, text: str) -> None:
        """Read more text."""
        if self._line is _Line.ORDINARY and "\n" not in text:
            return
        first, *others = text.split("\n")
        self._grow_line(first)
        for line in others:
            self._end_line()
            self._grow_line(line)

    def _grow_line(self, text: str) -> None:
        if self._line is _Line.ORDINARY:
            return
        self._head += text
        cannot_grow_into_fence = not self._fence and _OPENER_BEGINNING.fullmatch(self._head) is None
        if self._line is _Line.OPENS or cannot_grow_into_fence:
            self._decide_opener()
        elif len(self._head) > _MAX_HEAD_CHARS:
            self._decide(_Line.ORDINARY, "")

    def _decide_opener(self) -> None:
        fence = _opened_fence(self._head)
        self._decide(_Line.OPENS if fence else _Line.ORDINARY, fence)

    def _decide(self, line: _Line, head: str) -> None:
        self._line = line
        self._head = head

    def _end_line(self) -> None:
        if self._fence:
            closer = _CLOSER.fullmatch(self._head)
            if closer and closer[1].startswith(self._fence):
                self._fence = ""
        else:
            self._fence = _opened_fence(self._head)
        self._decide(_Line.UNDECIDED, "")


def _opened_fence(line: str) -> str:
    """The fence that this line opens, or nothing; a line such as ```` ```x``` ```` is inline code."""
    found = _OPENER.match(line)
    if found is None or found.end() > _MAX_HEAD_CHARS or (found[1][0] == "`" and "`" in line[found.end() :]):
        return ""
    return found[1]
