"""A turn is open or terminal."""

import pytest
from pydantic import ValidationError

from everturn.timeline.turns import TurnRequest, TurnStatus, TurnUsage


def test_a_turn_is_open_until_it_ends() -> None:
    still_open = {TurnStatus.QUEUED, TurnStatus.RUNNING, TurnStatus.WAITING}

    assert {status for status in TurnStatus if status.is_open} == still_open


def test_a_request_needs_only_a_text() -> None:
    assert TurnRequest("Hello.") == TurnRequest("Hello.", (), None)


def test_usage_starts_at_nothing_and_is_closed() -> None:
    assert TurnUsage() == TurnUsage(input_tokens=0, output_tokens=0, cache_read_tokens=0, cost_usd=0.0)
    with pytest.raises(ValidationError):
        TurnUsage.model_validate({"tokens": 1})
