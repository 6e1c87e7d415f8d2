"""Finds the code in Markdown that models write, whole or in pieces: code fences, and inline code."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Literal, NamedTuple

MAX_SHOWN_LATE_CHARS = 256
"""What follows a backtick is held back only so long while an answer is shown: longer inline code counts as text until
all of the answer is known. For the same reason, a line that opens or closes a fence is judged by its first
characters."""
MAX_INLINE_CHARS = 8_192
"""Longer inline code is text."""
_MAX_HEAD_CHARS = 64
"""A line opens a fence only if the backticks or tildes of the fence end within this many characters."""
_HEAD_START = frozenset(" \t>`~-*+•0123456789")
_ITEMS = r"[ \t>]*+(?>(?:(?:[-*+•]|\d{1,9}[.)])[ \t]++(?:\[[ xX]\][ \t]++)?)*)"
"""Quotes, and list items in each other, also of tasks."""
_OPENER_BEGINNING = re.compile(rf"{_ITEMS}(?:[-*+•]|\d{{1,9}}[.)]?|\[[ xX]?\]?|`+|~+)?")
_OPENER = re.compile(rf"{_ITEMS}(`{{3,}}|~{{3,}})")
_CLOSER = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t\r]*")
_LATE_OPENER = re.compile(r"`{3,32}[\w+#.-]{1,32}[ \t\r]{0,32}\n")
"""The end of a line that may open a fence behind other text, with the name of a language."""
_FENCE_LINE = re.compile(r"^[ \t>]{0,64}+(?P<fence>`{3,64}+)[ \t\r]{0,64}+(?P<info>\S)?", re.MULTILINE)
_MARK = re.compile("[`~]")
_BACKTICKS = re.compile(f"`{{1,{MAX_SHOWN_LATE_CHARS}}}")
"""A run that is even longer counts as several, so that its pieces do too."""

SpanKind = Literal["text", "inline", "fence"]


class Span(NamedTuple):
    """A part of a text that is inline code, a part of a code fence, or neither."""

    text: str
    kind: SpanKind


class CodeSplitter:
    """Splits a text that arrives in pieces, by `feed` and then `finish`.

    Inline code ends on its line; a backtick without a partner is text. A fence that is not closed goes on to the end.
    It can be in a list item or a quote. The beginning of a line that may be one of a fence is held back, and so is
    inline code. A fence that opens behind other text of its line is code only if its closing line follows as soon as
    the end of inline code has to, and before any other opening line; until then, what is in it is held back.
    """

    __slots__ = ("_at_line_start", "_fence", "_held", "_is_late_open", "_late", "_max_inline_chars")

    def __init__(self, max_inline_chars: int = MAX_SHOWN_LATE_CHARS) -> None:
        self._max_inline_chars = max_inline_chars
        self._fence = ""
        self._late = ""
        """The fence that a line has opened behind other text, until its closing line."""
        self._is_late_open = False
        """Whether the closing line can still make it code. Later, that line is text: it opens no fence."""
        self._held = ""
        self._at_line_start = True

    @property
    def in_fence(self) -> bool:
        """Whether the lines so far end inside a fence."""
        return bool(self._fence)

    @property
    def in_late_fence(self) -> bool:
        """Whether the text so far ends in what becomes a fence, opened behind other text, if its end follows."""
        return self._is_late_open

    @property
    def in_code(self) -> bool:
        """Whether the text so far ends in code, or in what becomes code if its end follows."""
        return bool(self._fence or self._is_late_open or "`" in self._held or _opened_fence(self._held))

    @property
    def held_chars(self) -> int:
        """How many characters at the end of the text are held back."""
        return len(self._held)

    def feed(self, text: str, *, ends_run: bool = False) -> Sequence[Span]:
        """Return the spans that are certain now. With `ends_run`, it is known that no backtick follows `text`."""
        if self.try_pass(text):
            return (Span(text, "text"),) if text else ()
        return list(self._split(self._held + text, ends_run=ends_run))

    def try_pass(self, text: str) -> bool:
        """Read a text if all of it is certainly no code, which is fast; otherwise read nothing and return False."""
        if self._fence or self._is_late_open or self._held or "`" in text or "~" in text:
            return False
        last_break = text.rfind("\n")
        if (last_break >= 0 or self._at_line_start) and text[last_break + 1 : last_break + 2] in _HEAD_START:
            return False
        self._at_line_start = last_break + 1 == len(text) and (last_break >= 0 or self._at_line_start)
        return True

    def skip_lines(self, text: str) -> str:
        """Read the whole lines at the beginning of a text without splitting them, and return the rest; it is all of the
        text if a fence or held-back text may be in them."""
        end = text.rfind("\n") + 1
        if not end or self._fence or self._is_late_open or self._held or "```" in text or "~~~" in text:
            return text
        self._at_line_start = True
        return text[end:]

    def finish(self) -> Sequence[Span]:
        """Return what was held back."""
        return list(self._split(self._held, is_last=True))

    def _split(self, text: str, *, is_last: bool = False, ends_run: bool = False) -> Iterator[Span]:
        self._held = ""
        position = 0
        while position < len(text):
            if self._is_late_open:
                end = self._find_late_end(text, position, is_last=is_last)
                if end is None:
                    self._held = text[position:]
                    return
                self._is_late_open = False
                if end > position:
                    yield Span(text[position:end], "fence")
                    position, self._at_line_start = end, False
                continue
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
            yield from self._split_line(line, is_whole=is_whole, ends_run=ends_run)
            self._at_line_start = line[-1] == "\n"

    def _find_late_end(self, text: str, begin: int, *, is_last: bool) -> int | None:
        """Where the code from `begin` on ends; `begin` if it is text, and None if that is not known yet."""
        limit = begin + self._max_inline_chars
        for line in _FENCE_LINE.finditer(text, begin, limit):
            if line["info"]:
                self._late = ""
                return begin
            is_whole = is_last and line.end() == len(text)
            if line["fence"].startswith(self._late) and (is_whole or text[line.end() : line.end() + 1] == "\n"):
                self._late = ""
                return line.end()
        return begin if is_last or len(text) > limit else None

    def _may_be_fence(self, line: str) -> bool:
        if len(line) > MAX_SHOWN_LATE_CHARS:
            return False
        if self._fence:
            return not line.strip(" \t\r>`~")
        head = len(line) <= _MAX_HEAD_CHARS and _OPENER_BEGINNING.fullmatch(line) is not None
        return head or bool(_opened_fence(line))

    def _split_line(self, line: str, *, is_whole: bool, ends_run: bool) -> Iterator[Span]:
        if self._fence:
            if not (self._at_line_start and _closes_fence(line, self._fence)):
                yield Span(line, "fence")
                return
            self._fence = ""
            yield Span(line.rstrip("\n"), "fence")
            if line[-1] == "\n":
                yield Span("\n", "text")
        elif self._at_line_start and (fence := _opened_fence(line)):
            is_late_end = self._late and _closes_fence(line, self._late)
            self._late = ""
            self._fence = "" if is_late_end else fence
            yield Span(line, "text" if is_late_end else "fence")
        else:
            yield from self._split_inline(line, is_whole=is_whole, ends_run=ends_run)

    def _split_inline(self, line: str, *, is_whole: bool, ends_run: bool) -> Iterator[Span]:
        runs = [run.span() for run in _BACKTICKS.finditer(line)]
        begin = position = 0
        for (start, end), partner in zip(runs, _find_partners(runs, self._max_inline_chars), strict=True):
            if start < position:
                continue
            may_grow = partner == len(line) and not ends_run
            if not is_whole and len(line) <= start + self._max_inline_chars and (partner is None or may_grow):
                self._held = line[start:]
                line = line[:start]
                break
            if partner is None and not self._late and _LATE_OPENER.fullmatch(line, start):
                self._late, self._is_late_open = line[start:end], True
            if partner is not None:
                if start > begin:
                    yield Span(line[begin:start], "text")
                yield Span(line[start:partner], "inline")
                begin = position = partner
        if len(line) > begin:
            yield Span(line[begin:], "text")


def _find_partners(runs: Sequence[tuple[int, int]], max_chars: int) -> list[int | None]:
    """For each run of backticks, the end of the next of its length; None if that is too far away, or there is none."""
    next_ends: dict[int, int] = {}
    partners: list[int | None] = []
    for start, end in reversed(runs):
        partner = next_ends.get(end - start)
        partners.append(partner if partner is not None and partner <= start + max_chars else None)
        next_ends[end - start] = end
    return partners[::-1]


def split_code(text: str) -> list[Span]:
    """The spans of a whole text; each fence is one."""
    splitter = CodeSplitter(MAX_INLINE_CHARS)
    spans = (*splitter.feed(text), *splitter.finish())
    runs = [list(run) for _, run in groupby(spans, attrgetter("kind"))]
    return [Span("".join(span.text for span in run), run[0].kind) for run in runs]


def _closes_fence(line: str, fence: str) -> bool:
    closer = _CLOSER.fullmatch(line.rstrip("\n")) if len(line) <= MAX_SHOWN_LATE_CHARS else None
    return closer is not None and closer[1].startswith(fence)


def _opened_fence(line: str) -> str:
    """The fence that this line opens, or nothing; a line such as ```` ```x``` ```` is inline code."""
    if "```" not in line and "~~~" not in line:
        return ""
    found = _OPENER.match(line, 0, MAX_SHOWN_LATE_CHARS)
    if found is None or found.end() > _MAX_HEAD_CHARS:
        return ""
    return "" if found[1][0] == "`" and "`" in line[found.end() : MAX_SHOWN_LATE_CHARS] else found[1]
