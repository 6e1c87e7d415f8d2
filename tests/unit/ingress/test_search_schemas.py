"""The schema of search requests."""

import pytest
from pydantic import ValidationError

from ingress.search import SearchIn


def test_a_period_may_be_open_at_either_end() -> None:
    wanted = SearchIn.model_validate({"query": "x", "from": "2026-03-01T00:00:00Z"})

    assert wanted.since is not None
    assert wanted.until is None


@pytest.mark.parametrize(
    "changes",
    [
        {"query": "\n"},
        {"limit": True},
        {"targets": "user"},
        {"from": "x"},
        {"to": "9999-01-01T00:00:00Z"},
        {"since": 1},
    ],
)
def test_invalid_searches_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SearchIn.model_validate({"query": "x"} | changes)
