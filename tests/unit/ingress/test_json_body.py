"""JSON bodies contain their fields and omit absent ones."""

from typing import Any

import pytest
from pydantic import Field, ValidationError

from ingress.fields import JsonBody, is_absent


class Room(JsonBody):
    seats: int
    view: str | None = Field(default=None, exclude_if=is_absent)


@pytest.mark.parametrize("body", [{"seats": 1, "doors": 2}, {"seats": "1"}, {"seats": 1, "view": 2}])
def test_unknown_fields_and_other_types_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Room.model_validate(body)


def test_what_is_absent_is_left_out() -> None:
    assert Room(seats=0).model_dump() == {"seats": 0}
    assert Room(seats=0, view="").model_dump() == {"seats": 0, "view": ""}
