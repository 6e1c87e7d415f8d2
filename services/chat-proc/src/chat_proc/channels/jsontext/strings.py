"""Decodes one JSON string that arrives in pieces: escapes and surrogate pairs may be cut anywhere."""

import json
import re
from typing import NamedTuple

_WHOLE_UNITS = re.compile(r'(?>(?:[^"\\]++|\\(?:[^u]|u[0-9a-fA-F]{4}))*)', re.DOTALL)
_ESCAPE_BEGINNING = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_HIGH_SURROGATE_AT_END = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
_LAST_ESCAPE_CHARS = 6
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_DECODER = json.JSONDecoder(strict=False)


class StringRun(NamedTuple):
    """`text` is decoded; reading goes on at `end`. `closed`: the quote was met; `broken`: an escape is none."""

    text: str
    end: int
    closed: bool
    broken: bool = False


def decode_run(source: str, start: int) -> StringRun:
    """Decode from `start`, inside a string, as far as `source` allows; what is left belongs before the next piece."""
    found = _WHOLE_UNITS.match(source, start)
    end = found.end() if found else start
    if end < len(source) and source[end] == '"':
        return _decoded(source[start:end], end + 1, closed=True)
    if end < len(source) and not _ESCAPE_BEGINNING.fullmatch(source, end):
        return StringRun("", end, closed=False, broken=True)
    end = _before_lone_high_surrogate(source, start, end)
    return _decoded(source[start:end], end, closed=False)


def storable(text: str) -> str:
    """`text` with what no database and no UTF-8 writer takes (NUL, half surrogate pairs) replaced by U+FFFD."""
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def _before_lone_high_surrogate(source: str, start: int, end: int) -> int:
    """Its other half may still come; an escaped backslash before `u` is no escape, which only counting tells."""
    first = max(start, end - _LAST_ESCAPE_CHARS)
    if source.find("\\", first, end) < 0:
        return end
    found = _HIGH_SURROGATE_AT_END.search(source, first, end)
    if found is None or _backslashes_before(source, start, found.start()) % 2:
        return end
    return found.start()


def _backslashes_before(source: str, start: int, end: int) -> int:
    return end - start - len(source[start:end].rstrip("\\"))


def _decoded(raw: str, end: int, *, closed: bool) -> StringRun:
    if "\\" not in raw:
        return StringRun(storable(raw), end, closed)
    try:
        text: str = _DECODER.raw_decode(f'"{raw}"')[0]
    except ValueError:
        return StringRun("", end, closed, broken=True)
    return StringRun(storable(text), end, closed)
