"""Keys of the effect ledger, and that both drivers have the port's shape."""

from dataclasses import replace

import pytest

from everturn.core.ids import CallId, TurnId
from everturn.turns.ports import EffectKey

KEY = EffectKey(TurnId("turn_1"), CallId("call_1"), "mail.send", "a" * 64, 1)


def test_the_row_of_a_call_is_the_same_when_the_run_is_repeated() -> None:
    assert KEY.row_id == replace(KEY).row_id
    assert KEY.row_id.startswith("call_1/")


@pytest.mark.parametrize(
    "other",
    [
        replace(KEY, run_call_id=CallId("call_2")),
        replace(KEY, tool_id="mail.sent"),
        replace(KEY, args_hash="b" * 64),
        replace(KEY, occurrence=2),
    ],
)
def test_another_call_has_another_row(other: EffectKey) -> None:
    assert other.row_id != KEY.row_id
