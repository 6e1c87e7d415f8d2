"""Values without columns of their own are unchanged after their JSON."""

import pytest

from everturn.core.identity import Lane
from everturn.core.ids import SignalId, TurnId
from everturn.events.cursor import EventCursor
from everturn.postgres.pool import replace_nul
from everturn.timeline.turns import SignalState, TurnRequest
from everturn.turns.inbox import Receipt
from everturn.turns.postgres_rows import (
    build_payload_json,
    build_receipt_json,
    build_request_json,
    read_cursor,
    read_payload,
    read_receipt,
    read_request,
)
from everturn_testing.core import SequentialIds

TEXT = "a\x00b \u2028 \U0001f600"


def test_a_request_comes_back_and_its_json_can_be_stored() -> None:
    request = TurnRequest(TEXT, (), "sales")

    assert read_request(build_request_json(request)) == request
    assert "\x00" not in build_request_json(request)


def test_a_payload_comes_back_and_its_json_can_be_stored() -> None:
    assert read_payload(build_payload_json(TEXT, ())).text == TEXT
    assert "\x00" not in build_payload_json(TEXT, ())


@pytest.mark.parametrize("signal", [(None, None), (SignalId("sig_x"), SignalState.ACCEPTED)])
def test_a_receipt_comes_back(signal: tuple[SignalId | None, SignalState | None]) -> None:
    receipt = Receipt(SequentialIds().conversation(), TurnId("turn_x"), *signal, ring=True, lane=Lane.PAID)

    assert read_receipt(build_receipt_json(receipt)) == receipt


def test_a_cursor_is_read_or_refused() -> None:
    assert read_cursor("3-14") == EventCursor(3, 14)
    with pytest.raises(ValueError, match="not an event cursor"):
        read_cursor("3")


def test_displayed_text_loses_null_characters() -> None:
    assert replace_nul("a\x00b") == "a\ufffdb"
