"""The first field of an export line determines its kind, and unknown fields are rejected."""

import pytest
from pydantic import ValidationError

from everturn.lifecycle.exports import EXPORT_LINE, BrokenLine, EndLine


def test_a_line_is_parsed_by_its_kind() -> None:
    assert EXPORT_LINE.validate_json('{"line":"broken","detail":"x"}') == BrokenLine(detail="x")


@pytest.mark.parametrize(
    "text",
    ['{"line":"other"}', "{}", '{"line":"broken","detail":"x","more":1}', '{"line":"broken","detail":1}'],
)
def test_other_lines_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        EXPORT_LINE.validate_json(text)


def test_counts_are_not_negative() -> None:
    with pytest.raises(ValidationError):
        EndLine(blocks=-1, artifacts=0, signals=0, feedback=0, last_hash="0" * 64)
