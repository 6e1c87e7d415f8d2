"""How memories are shown."""

import pytest
from pydantic import ValidationError

from ingress.memory import ForgottenOut, MemoryList


def test_what_is_shown_has_nothing_unknown_inside() -> None:
    assert MemoryList(items=(), next_cursor=None).model_dump() == {"items": (), "next_cursor": None}
    with pytest.raises(ValidationError):
        ForgottenOut.model_validate({"forgotten": 1, "more": 2})
