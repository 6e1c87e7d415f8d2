"""What an operator may say about tool modules."""

from typing import Any

import pytest
from pydantic import ValidationError

from chat_proc.catalog.described import ToolModule
from everturn.turns.model import Effect


def test_defaults_are_cautious() -> None:
    entry = ToolModule.model_validate({"alias": "city", "module": "city_tools", "tools": {"find": {}}})

    reported = entry.tools["find"]
    assert (reported.effect, reported.in_programs, reported.in_loop) == (Effect.IRREVERSIBLE, True, True)


@pytest.mark.parametrize(
    "entry",
    [
        {"alias": "city", "tools": {"find": {}}},
        {"alias": "city", "module": "a", "file": "b.py", "tools": {"find": {}}},
        {"alias": "city", "module": "a", "tools": {}},
        {"alias": "city", "module": "a", "tools": {"_find": {}}},
        {"alias": "City.x", "module": "a", "tools": {"find": {}}},
        {"alias": "city", "module": "a", "tools": {"find": {"effect": "none"}}},
        {"alias": "city", "module": "a", "tools": {"find": {"timeout_s": 301}}},
        {"alias": "city", "module": "a", "tools": {"find": {"strategy": "careless"}}},
        {"alias": "city", "module": "a", "tools": {"find": {"colour": "red"}}},
    ],
)
def test_a_wrong_entry_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ToolModule.model_validate(entry)
