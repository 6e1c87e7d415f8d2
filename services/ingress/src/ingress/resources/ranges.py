"""Byte ranges of RFC 9110: one range is served, several or senseless ones are answered with the whole file."""

import re
from dataclasses import dataclass

_ONE_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes `start` up to but not `end`."""

    start: int
    end: int


class NotSatisfiable(Exception):
    """The range begins behind the end of the file (416)."""


def try_read_range(header: str | None, size: int) -> Slice | None:
    """The one range asked for; None means the whole file. Raises NotSatisfiable."""
    match = _ONE_RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < int(first):
            return None
    if start >= size or start >= end:
        raise NotSatisfiable()
    return Slice(start, end)
