"""Regular expressions of a model: RE2, which takes time in proportion to the text whatever the expression."""

from typing import Any, cast

import re2

from everturn.errors import Invalid

MAX_PATTERN_CHARS = 1_000
MAX_MEMORY_BYTES = 8 * 1024 * 1024
"""What one compiled expression may take; a larger one is refused."""


class Pattern:
    """A compiled expression. It lets other threads run while it searches."""

    def __init__(self, text: str) -> None:
        """Raises Invalid, with what is wrong, when `text` is no expression that RE2 takes."""
        library = cast(Any, re2)
        options = library.Options()
        options.max_mem = MAX_MEMORY_BYTES
        options.log_errors = False
        if len(text) > MAX_PATTERN_CHARS:
            raise Invalid(f"A regular expression has at most {MAX_PATTERN_CHARS} characters.")
        try:
            self._compiled = library.compile(text, options)
        except (library.error, UnicodeEncodeError) as error:
            raise Invalid(
                f"{text[:80]!a} is not a valid regular expression: {_reason(error)}. "
                "The syntax is RE2: like Python's, without look-around and back-references."
            ) from error

    def find(self, text: str) -> tuple[int, int] | None:
        """Where the first match begins and ends, in characters."""
        match = self._compiled.search(text)
        return None if match is None else cast("tuple[int, int]", match.span())


def _reason(error: Exception) -> str:
    first = error.args[0] if error.args else str(error)
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)
