"""Titles are one line."""

import pytest
from pydantic import TypeAdapter, ValidationError

from ingress.admission.lines import MAX_TITLE_CHARS, Line

LINE: TypeAdapter[str] = TypeAdapter(Line)


@pytest.mark.parametrize("text", ["", "Sales by region", "x" * MAX_TITLE_CHARS, "\u202eodd but one line"])
def test_a_line_is_taken_as_it_is(text: str) -> None:
    assert LINE.validate_python(text) == text


@pytest.mark.parametrize("text", ["a\nb", "a\x00", "\x7f", "\ud800", "x" * (MAX_TITLE_CHARS + 1)])
def test_what_is_no_line_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        LINE.validate_python(text)
