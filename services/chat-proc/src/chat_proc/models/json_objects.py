"""Finds JSON objects in what a model wrote: alone, in a code fence, or inside other text."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn, cast

_OBJECT_START = re.compile(r'\{\s*+["}]')
_REASONING = re.compile(r"\s*+<think(?:ing)?>(?s:.*?)</think(?:ing)?>")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

_MAX_FAILURES = 1_000
_MAX_REREADINGS = 8
"""Limit the time for a text in which much looks like the beginning of an object. The second is how often the whole
text may be read in vain."""


def extract_json(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, in order, without those inside another valid one. Never raises.

    Strings may contain raw line breaks. Numbers that JSON does not have are not read; characters that databases and
    UTF-8 writers reject (NUL, lone surrogates) are replaced by U+FFFD. What a model thinks in tags at the beginning is
    skipped. The search ends early in a text that only resembles JSON.
    """
    thought = _REASONING.match(text)
    start = _OBJECT_START.search(text, thought.end() if thought else 0)
    failures, read_chars = 0, 0
    while start is not None and failures < _MAX_FAILURES and read_chars <= _MAX_REREADINGS * len(text):
        try:
            value, end = _DECODER.raw_decode(text, start.start())
            found = cast("dict[str, Any]", _clean(value))
        except json.JSONDecodeError as error:
            failures += 1
            read_chars += error.pos - start.start()
            end = start.start() + 1
        except ValueError:  # a number that can't be read; it may be anywhere
            failures += 1
            read_chars += len(text) - start.start()
            end = start.start() + 1
        except RecursionError:
            return
        else:
            yield found
        start = _OBJECT_START.search(text, end)


def _clean(value: object) -> object:
    """The value with storable strings. Raises RecursionError."""
    match value:
        case str():
            return value if value.isascii() and "\x00" not in value else _UNSTORABLE.sub("\ufffd", value)
        case dict():
            fields = cast("dict[str, object]", value)
            return {str(_clean(key)): _clean(item) for key, item in fields.items()}
        case list():
            return [_clean(item) for item in cast("list[object]", value)]
        case _:
            return value


def _read_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is too large")
    return number


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


_DECODER = json.JSONDecoder(parse_float=_read_float, parse_constant=_reject_constant, strict=False)
