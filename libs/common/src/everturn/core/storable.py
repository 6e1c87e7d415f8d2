"""Texts that databases, UTF-8 writers and wire formats accept: without NUL and lone surrogates."""

import math
import re
from collections.abc import Sequence
from typing import Any, Final, cast

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def replace_unstorable(text: str) -> str:
    """The text with U+FFFD in place of such characters."""
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def make_storable(value: Any) -> Any:
    """A text with U+FFFD in place of such characters; of lists and tables each text, with null for a number that JSON
    doesn't have."""
    match value:
        case str():
            return replace_unstorable(value)
        case list() | tuple():
            return [make_storable(each) for each in cast("Sequence[Any]", value)]
        case dict():
            return {make_storable(key): make_storable(each) for key, each in cast("dict[str, Any]", value).items()}
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
