"""Reads whole JSON that models write: one value, alone or in a code fence, or the objects inside other text.

It is lenient about strings, which may contain raw line breaks, and strict about what can't be stored or has two
meanings: duplicate keys, numbers that JSON does not have, large integers. Characters that databases and UTF-8 writers
reject (NUL, lone surrogates) become U+FFFD.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, cast

from everturn.core.storable import replace_unstorable

FENCE_START = r"`{3,}+[\w+.-]*+"
"""What opens a code fence: its backticks, and the name of a language."""
MAX_DEPTH = 64

_OBJECT_START = re.compile(r'\{\s*+["}]')
_LEAD = re.compile(rf"\s*+(?>(?:{FENCE_START})?)\s*+")
_TRAIL = re.compile(r"\s*+(?>`{3,}+)?\s*+")
"""Atomic groups prevent backtracking over blanks that two parts could match."""
_VALUE_START = re.compile(r"[{\[]")
_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING_RUN = re.compile(r'(?>(?:[^"\\]++|\\.)*)', re.DOTALL)
_LARGEST_INTEGER = 2**63 - 1
_LONGEST_INTEGER_CHARS = 20
_SHOWN_CHARS = 60

_MAX_FAILURES = 1_000
_MAX_REREADINGS = 8
"""Limit the time for a text in which much looks like the beginning of an object. The second is how often the whole
text may be read in vain."""

JsonFault = Literal[
    "not_json", "two_objects", "text_after_object", "duplicate_key", "not_a_number", "number_too_large", "too_deep"
]


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value of dict, list, str, int, float, bool and None; its strings are storable."""

    value: object


@dataclass(frozen=True, slots=True)
class JsonRefusal:
    """Why a text is not a single JSON value; `detail` names the position or the key."""

    fault: JsonFault
    detail: str


_TOO_DEEP = JsonRefusal("too_deep", f"more than {MAX_DEPTH} brackets")


def read_json(text: str) -> JsonValue | JsonRefusal:
    """Parse one value, with or without a surrounding code fence. Never raises."""
    lead = _LEAD.match(text)
    start = lead.end() if lead else 0
    if _is_too_deep(text):
        return _TOO_DEEP
    decoded = _decode(text, start)
    if isinstance(decoded, JsonRefusal):
        return decoded
    value, end = decoded
    rest = text[end:]
    if _TRAIL.fullmatch(rest):
        return JsonValue(_storable_value(value))
    rest = rest.strip()
    return JsonRefusal("two_objects" if rest[0] in "{[" else "text_after_object", _shortened(rest))


def read_objects(text: str) -> Iterator[tuple[Mapping[str, object], int] | JsonRefusal]:
    """The JSON objects in a text, in order, each with the index after it, up to the first brace that begins none. Why
    that can't be read comes last: what looks like an object after it may be quoted in one of its strings. Never
    raises."""
    start = text.find("{")
    while start >= 0:
        decoded = _decode(text, start)
        if isinstance(decoded, JsonRefusal):
            yield decoded
            return
        value, end = decoded
        if _is_too_deep(text[start:end]):
            yield _TOO_DEEP
            return
        yield cast("dict[str, object]", value), end
        start = text.find("{", end)


def extract_json(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, in order, without those inside another valid one, or one that is too deep. Never
    raises. The search ends early in a text that only resembles JSON."""
    start = _OBJECT_START.search(text)
    failures, read_chars = 0, 0
    while start is not None and failures < _MAX_FAILURES and read_chars <= _MAX_REREADINGS * len(text):
        try:
            value, end = _DECODER.raw_decode(text, start.start())
        except RecursionError:
            return
        except ValueError as error:
            failures += 1
            # A refused value may be anywhere.
            read_chars += (error.pos if isinstance(error, json.JSONDecodeError) else len(text)) - start.start()
            end = start.start() + 1
        else:
            if not _is_too_deep(text[start.start() : end]):
                yield cast("dict[str, Any]", value)
        start = _OBJECT_START.search(text, end)


def is_whole(text: str, start: int) -> bool:
    """Whether a readable value begins at `start`, whatever follows it."""
    try:
        _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return False
    return True


def as_object(value: object) -> Mapping[str, object] | None:
    """A parsed value if it is an object."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else None


def _decode(text: str, start: int) -> tuple[object, int] | JsonRefusal:
    """The value that begins at `start`, and the index after it."""
    try:
        return _DECODER.raw_decode(text, start)
    except _Refused as refused:
        return JsonRefusal(refused.fault, refused.detail)
    except json.JSONDecodeError as error:
        return JsonRefusal("not_json", f"{error.msg} at line {error.lineno} column {error.colno}")
    except RecursionError:
        return _TOO_DEEP


def _is_too_deep(text: str) -> bool:
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return False
    depth = JsonDepth()
    depth.advance(text)
    return depth.deepest > MAX_DEPTH


class _Refused(ValueError):
    """A value that JSON writers produce by mistake."""

    def __init__(self, fault: JsonFault, detail: str) -> None:
        super().__init__(detail)
        self.fault: JsonFault = fault
        self.detail = detail


def _build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    built: dict[str, object] = {}
    for written, value in pairs:
        key = replace_unstorable(written)
        if key in built:
            raise _Refused("duplicate_key", _shortened(key))
        built[key] = _storable_value(value)
    return built


def _storable_value(value: object) -> object:
    if isinstance(value, str):
        return replace_unstorable(value)
    if isinstance(value, list):
        return [_storable_value(item) for item in cast("list[object]", value)]
    return value


def _read_integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER_CHARS or abs(int(digits)) > _LARGEST_INTEGER:
        raise _Refused("number_too_large", _shortened(digits))
    return int(digits)


def _read_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _Refused("number_too_large", _shortened(digits))
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise _Refused("not_a_number", name)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


_DECODER = json.JSONDecoder(
    object_pairs_hook=_build_object,
    parse_int=_read_integer,
    parse_float=_read_float,
    parse_constant=_refuse_constant,
    strict=False,
)


class JsonDepth:
    """The nesting depth at the end of the text read so far. Only `advance` changes it. Quotes count only inside an
    object or an array."""

    __slots__ = ("_after_backslash", "_in_string", "deepest", "depth")

    def __init__(self) -> None:
        self.depth = 0
        self.deepest = 0
        self._in_string = False
        self._after_backslash = False

    def advance(self, text: str) -> int:
        """Read `text`; returns the end index of the first value that became complete, or -1."""
        if self._in_string and not self._after_backslash and '"' not in text and "\\" not in text:
            return -1
        completed_at = -1
        position = 0
        while position < len(text):
            if self._in_string:
                position = self._leave_string(text, position)
                continue
            found = (_STRUCTURE if self.depth else _VALUE_START).search(text, position)
            if found is None:
                break
            position = found.end()
            self._enter(found[0])
            if self.depth == 0 and completed_at < 0:
                completed_at = position
        return completed_at

    def _enter(self, bracket: str) -> None:
        if bracket == '"':
            self._in_string = True
        else:
            self.depth += 1 if bracket in "{[" else -1
            self.deepest = max(self.deepest, self.depth)

    def _leave_string(self, text: str, position: int) -> int:
        if self._after_backslash:
            self._after_backslash = False
            return position + 1
        run = _STRING_RUN.match(text, position)
        stop = run.end() if run else position
        if stop < len(text):
            self._in_string = text[stop] != '"'
            self._after_backslash = self._in_string
        return stop + 1
