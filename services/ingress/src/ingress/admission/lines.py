"""Short texts of requests, such as titles: one line that looks like what it is, in one canonical form."""

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

MAX_TITLE_CHARS = 300
_BAD_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls (a terminal obeys those above 0x7f too), line separators, and what turns the direction of text around."""


def read_line(text: str) -> str:
    """The text in NFC. Raises ValueError unless it is one line without control characters."""
    if _BAD_TEXT.search(text):
        raise ValueError("must be one line without control characters")
    line = unicodedata.normalize("NFC", text)
    if len(line) > MAX_TITLE_CHARS:
        raise ValueError(f"must have at most {MAX_TITLE_CHARS} characters")
    return line


Line = Annotated[str, StringConstraints(max_length=MAX_TITLE_CHARS), AfterValidator(read_line)]
