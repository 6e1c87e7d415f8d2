"""The schema of fork requests."""

import pytest
from pydantic import ValidationError

from ingress.lifecycle import ForkIn


def test_nothing_needs_to_be_said() -> None:
    assert ForkIn.model_validate({}) == ForkIn(turn_id=None, title=None)


@pytest.mark.parametrize(
    "body", [{"title": "a\nb"}, {"title": "x" * 301}, {"turn_id": "x" * 81}, {"turn_id": 1}, {"x": 1}]
)
def test_what_is_no_fork_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ForkIn.model_validate(body)
