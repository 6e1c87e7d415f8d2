"""Titles are one line."""

import pytest
from pydantic import TypeAdapter, ValidationError

from ingress.fields import MAX_TITLE_CHARS, Line

LINE: TypeAdapter[str] = TypeAdapter(Line)


@pytest.mark.parametrize("text", ["", "Sales by region", "x" * MAX_TITLE_CHARS, "שלום 👩\u200d💻"])
def test_a_line_is_accepted_unchanged(text: str) -> None:
    assert LINE.validate_python(text) == text


def test_equal_looking_requests_share_a_line() -> None:
    assert LINE.validate_python("cafe\u0301") == LINE.validate_python("caf\xe9") == "caf\xe9"


@pytest.mark.parametrize(
    "text", ["a\nb", "a\x00", "\x7f", "\x9b31m", "a\u2028b", "\u202egpj.exe", "\ud800", "x" * 301, "\u0958" * 200]
)
def test_what_is_no_line_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        LINE.validate_python(text)
