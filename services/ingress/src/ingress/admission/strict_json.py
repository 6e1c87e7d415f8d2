"""Strict JSON: what can't be read in exactly one way, or can't be stored, is refused first."""

import json
import re
from typing import Any, NoReturn, cast

from everturn.errors import EverturnError

MAX_DEPTH = 64
MAX_TOKENS = 100_000
"""Strings, brackets and commas in one body; the largest honest body has a few hundred."""
MAX_NUMBER_CHARS = 40
_MAX_INT = 2**63 - 1

_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"?|[\[\]{},]', re.DOTALL)
"""Linear also for an unclosed string, which it takes to the end."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class BadJson(EverturnError):
    """The body is not acceptable JSON."""


def parse_strict(raw: bytes) -> Any:
    """Read one JSON text. Raises BadJson naming the reason and, where there is one, the place."""
    if raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise BadJson("It must not begin with a byte order mark.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadJson(f"It is not UTF-8 at byte {error.start}.") from error
    _check_shape(raw)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_int=_parse_int,
            parse_float=_parse_float,
        )
    except json.JSONDecodeError as error:
        raise BadJson(f"{error.msg} at line {error.lineno} column {error.colno}.") from error
    if b"\\u" in raw:
        _check_text(value, "$")
    return value


def _check_shape(raw: bytes) -> None:
    depth = 0
    for count, match in enumerate(_STRING_OR_BRACKET.finditer(raw)):
        if count >= MAX_TOKENS:
            raise BadJson(f"It has more than {MAX_TOKENS} values.")
        first = raw[match.start()]
        if first in b"[{":
            depth += 1
        elif first in b"]}":
            depth -= 1
        if depth > MAX_DEPTH:
            raise BadJson(f"It is nested deeper than {MAX_DEPTH} at byte {match.start()}.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadJson(f"The key {_shown(key)} appears twice.")
        found[key] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise BadJson(f"{name} is not JSON.")


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_NUMBER_CHARS or abs(int(digits)) > _MAX_INT:
        raise BadJson(f"The number {digits[:20]} is too large.")
    return int(digits)


def _parse_float(digits: str) -> float:
    value = float(digits) if len(digits) <= MAX_NUMBER_CHARS else float("inf")
    if value in (float("inf"), float("-inf")):
        raise BadJson(f"The number {digits[:20]} is too large.")
    return value


def _check_text(value: object, place: str) -> None:
    match value:
        case str():
            _check_string(value, place)
        case dict():
            for key, item in cast(dict[str, Any], value).items():
                _check_string(key, f"{place}.{_shown(key)}")
                _check_text(item, f"{place}.{_shown(key)}")
        case list():
            for index, item in enumerate(cast(list[Any], value)):
                _check_text(item, f"{place}[{index}]")
        case _:
            pass


def _check_string(text: str, place: str) -> None:
    if "\x00" in text:
        raise BadJson(f"{place} holds the character U+0000, which can't be stored.")
    if _SURROGATE.search(text):
        raise BadJson(f"{place} holds half of a surrogate pair.")


def _shown(key: str) -> str:
    plain = key.isascii() and key.isidentifier() and len(key) <= 60
    return key if plain else ascii(key[:60])
