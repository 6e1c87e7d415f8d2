"""Short texts of requests, such as titles: one line without control characters."""

import re
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

MAX_TITLE_CHARS = 300
_BAD_TEXT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def check_line(text: str) -> str:
    """One line of text without control characters."""
    if _BAD_TEXT.search(text):
        raise ValueError("must be one line without control characters")
    return text


Line = Annotated[str, StringConstraints(max_length=MAX_TITLE_CHARS), AfterValidator(check_line)]
