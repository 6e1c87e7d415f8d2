"""Reads one whole JSON value that a model wrote, and says in a word what is wrong when it is none."""

import json
import math
import re
from dataclasses import dataclass
from typing import Literal, NoReturn, cast

from chat_proc.channels.jsontext.depth import JsonDepth
from chat_proc.channels.jsontext.strings import storable

JsonFault = Literal[
    "not_json", "two_objects", "text_after_object", "duplicate_key", "not_a_number", "number_too_large", "too_deep"
]

_FENCE_START = re.compile(r"\s*+(?>(?:`{3,}[a-zA-Z]*)?)\s*+")
_FENCE_END = re.compile(r"\s*+(?>`{3,})?\s*+")
"""Atomic: blanks that another part could take as well would be divided in every way."""
MAX_DEPTH = 64
_LARGEST_INTEGER = 2**63 - 1
_LONGEST_INTEGER_CHARS = 20
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value of dict, list, str, int, float, bool and None; texts in it are storable."""

    value: object


@dataclass(frozen=True, slots=True)
class JsonRefusal:
    """Why a text is no single JSON value; `detail` names the place or the key."""

    fault: JsonFault
    detail: str


def read_json(text: str) -> JsonValue | JsonRefusal:
    """One value, with or without a code fence around it. Strings may hold raw line breaks; objects no key twice."""
    lead = _FENCE_START.match(text)
    start = lead.end() if lead else 0
    if text.count("{") + text.count("[") > MAX_DEPTH:
        depth = JsonDepth()
        depth.advance(text)
        if depth.deepest > MAX_DEPTH:
            return JsonRefusal("too_deep", f"more than {MAX_DEPTH} brackets")
    try:
        value, end = _DECODER.raw_decode(text, start)
    except _Refused as refused:
        return JsonRefusal(refused.fault, refused.detail)
    except json.JSONDecodeError as error:
        return JsonRefusal("not_json", f"{error.msg} at line {error.lineno} column {error.colno}")
    rest = text[end:]
    if _FENCE_END.fullmatch(rest):
        return JsonValue(_storable_value(value))
    rest = rest.strip()
    return JsonRefusal("two_objects" if rest[0] in "{[" else "text_after_object", _shortened(rest))


class _Refused(Exception):
    """A value that JSON writers produce by mistake."""

    def __init__(self, fault: JsonFault, detail: str) -> None:
        super().__init__(detail)
        self.fault: JsonFault = fault
        self.detail = detail


def _build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    built: dict[str, object] = {}
    for written, value in pairs:
        key = storable(written)
        if key in built:
            raise _Refused("duplicate_key", _shortened(key))
        built[key] = _storable_value(value)
    return built


def _storable_value(value: object) -> object:
    if isinstance(value, str):
        return storable(value)
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
