"""The values of the inbox, and what its errors are to a client."""

from everturn.core.errors import Conflict, Invalid
from everturn.core.identity import Lane
from everturn.core.ids import ConversationId, SignalId, TurnId
from everturn.timeline.turns import SignalKind
from everturn.turns.inbox import IncomingMessage, IncomingSignal, KeyBusy, KeyReused, Receipt


def test_a_message_is_a_turn_by_default() -> None:
    message = IncomingMessage(ConversationId("c"), True, "x", (), TurnId("t"), SignalId("s"))

    assert (message.kind, message.target_turn_id, message.bundle_id) == (None, None, None)


def test_a_signal_has_no_files_and_no_target_by_default() -> None:
    signal = IncomingSignal(SignalId("s"), SignalKind.CANCEL, "")

    assert (signal.uploads, signal.target_turn_id) == ((), None)


def test_a_receipt_is_the_first_answer_unless_it_is_replayed() -> None:
    assert not Receipt(ConversationId("c"), TurnId("t"), None, None, ring=True, lane=Lane.PAID).replayed


def test_a_reused_key_is_invalid_and_a_busy_one_a_conflict() -> None:
    assert isinstance(KeyReused(), Invalid)
    assert isinstance(KeyBusy(), Conflict)
