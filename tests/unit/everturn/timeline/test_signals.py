"""Signals are values; their kinds and states are those of the API."""

from everturn.core.ids import SignalId, TurnId
from everturn.timeline.turns import Signal, SignalKind, SignalState
from everturn_testing.core import BEGINNING


def test_the_words_are_those_of_the_api() -> None:
    assert [kind.value for kind in SignalKind] == [
        "followup",
        "steer",
        "cancel",
        "event",
        "approve",
        "deny",
        "unknown",
    ]
    assert {state.value for state in SignalState} == {
        "unknown",
        "accepted",
        "applied",
        "promoted",
        "expired",
        "rejected",
        "retracted",
    }


def test_a_new_signal_has_not_been_applied() -> None:
    signal = Signal(SignalId("sig_1"), TurnId("turn_1"), SignalKind.STEER, "", SignalState.ACCEPTED, BEGINNING)

    assert (signal.round, signal.promoted_to, signal.attachments) == (None, None, ())
