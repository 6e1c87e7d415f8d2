"""The index of a turn on the wire rejects unknown fields."""

import pytest
from pydantic import ValidationError

from everturn.timeline.turn_index import IndexEntry, TurnIndexView

EMPTY = {
    "turn_id": "turn_1",
    "ref": "ar:turn_1.react.turn.index",
    "started_at": None,
    "ended_at": None,
    "outcome": None,
}


def test_sections_without_entries_are_empty_lists() -> None:
    dumped = TurnIndexView.model_validate(EMPTY).model_dump(mode="json")

    assert dumped["tools"] == dumped["sources"] == []


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValidationError):
        IndexEntry.model_validate({"ref": "ar:x", "kind": "x", "path": "y"})
