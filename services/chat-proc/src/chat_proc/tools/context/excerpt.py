"""Cuts the part out of a text that a read asks for, and says exactly which part it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """What to show: from a line (counted from 1), or else from a character (counted from 0). None is no wish."""

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
    """A part of a text. `label` says which, such as `lines [1-20]/80`; `next_offset` is where it goes on, if at all."""

    text: str
    label: str
    next_offset: int | None


def cut_excerpt(text: str, wanted: Range, max_chars: int) -> Excerpt:
    """The wanted part, at most `max_chars` characters of it. Lines asked for by number get their number before them."""
    if wanted.by_lines:
        return _cut_lines(text, wanted, max_chars)
    start = min(wanted.offset or 0, len(text))
    end = min(start + max_chars, len(text))
    if end < len(text):
        # End at a line break when there is one in the second half, so that what is shown are whole lines.
        newline = text.rfind("\n", start + max_chars // 2, end)
        end = newline + 1 if newline >= 0 else end
    label = f"characters [{start}-{end}]/{len(text)}"
    if start == 0:
        label = f"{_lines_label(text, end)}, {label}"
    return Excerpt(text[start:end], label, end if end < len(text) else None)


def _lines_label(text: str, end: int) -> str:
    total = count_lines(text)
    whole = total if end == len(text) else text.count("\n", 0, end)
    cut = "" if end == len(text) or text[end - 1 : end] == "\n" else " and part of the next"
    return f"lines [{min(1, total)}-{whole}]/{total}{cut}"


def _cut_lines(text: str, wanted: Range, max_chars: int) -> Excerpt:
    lines = text.split("\n")[: count_lines(text)]
    first = wanted.line_start or 1
    last = min(len(lines), first + wanted.line_count - 1 if wanted.line_count is not None else len(lines))
    shown: list[str] = []
    left = max_chars
    cut = ""
    for number in range(first, last + 1):
        line = f"{number}: {lines[number - 1]}"
        if len(line) + 1 > left:
            if not shown:
                shown.append(line[:left])
                cut = ", cut in the middle of its line"
            break
        shown.append(line)
        left -= len(line) + 1
    label = f"lines [{first}-{first + len(shown) - 1}]/{len(lines)}{cut}"
    return Excerpt("\n".join(shown), label, None)


def count_lines(text: str) -> int:
    """How many lines a text has; a line break at its end begins no further one."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)
