"""Finds line numbers of a preview that were copied into a patch: they are shown for reading and are no text."""

import re

_NUMBERED = re.compile(r"[ \t]*(\d{1,7})(?:: ?|[ \t]*\| ?|\t)(.*)", re.DOTALL)
MIN_SHARE = 0.35
MIN_LINES = 2
MANY_LINES = 5


def has_preview_numbers(patch: str, current: str, *, is_diff: bool) -> bool:
    """Whether lines of the patch are lines of the current text behind their number, which the text itself has not.

    Enough is two such lines that are a third of all, or five.
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
