from dataclasses import replace

import pytest

from chat_proc.agent.drafting import RoundContext
from chat_proc.agent.signal_folding import (
    ends_work,
    fold_signals,
    needs_response,
    settle_late_signals,
    through_last_end,
)
from everturn.core.ids import SignalId, TurnId
from everturn.events.model import ChatSignal
from everturn.timeline.blocks import AttachmentTextBody, BlockType, EventBody, SignalBody
from everturn.timeline.turns import ExternalEvent, Signal, SignalKind, SignalState
from everturn.turns.model import Promotion, SignalChange
from everturn_testing.core import BEGINNING
from everturn_testing.events.scenarios import make_artifact

TURN, NEXT = TurnId("turn_1"), TurnId("turn_2")
CONTEXT = RoundContext(TURN, 3, 15, "now")


def say(kind: SignalKind, text: str = "", name: str = "sig_1") -> Signal:
    return Signal(SignalId(name), TURN, kind, text, SignalState.ACCEPTED, BEGINNING)


FOLLOWUP = say(SignalKind.FOLLOWUP, "more", "sig_f")
STEER = say(SignalKind.STEER, "left", "sig_s")
STOP = say(SignalKind.STEER, "  ", "sig_b")
INVISIBLE = say(SignalKind.STEER, "\u200b\ufe0f", "sig_i")
CANCEL = say(SignalKind.CANCEL, name="sig_c")


@pytest.mark.parametrize(
    ("signal", "ends"), [(FOLLOWUP, False), (STEER, False), (STOP, True), (INVISIBLE, True), (CANCEL, True)]
)
def test_a_cancel_and_a_blank_steer_end_the_work(signal: Signal, ends: bool) -> None:
    assert ends_work(signal) is ends


def test_a_steer_with_a_file_is_not_blank() -> None:
    assert not ends_work(replace(STOP, attachments=(make_artifact(TURN, "a.txt"),)))


FORM = replace(say(SignalKind.EVENT, "sent", "sig_e"), event=ExternalEvent("form", {"total": 7}, iteration_credit=2))
RECORD = replace(say(SignalKind.EVENT, "noted", "sig_r"), event=ExternalEvent("alert", reactive=False))


def test_only_what_waits_for_the_agent_is_heard() -> None:
    heard = [signal.id for signal in (FOLLOWUP, STEER, STOP, CANCEL, FORM, RECORD) if needs_response(signal)]

    assert heard == [FOLLOWUP.id, STEER.id, FORM.id]


def test_an_event_becomes_a_block_of_its_own_kind() -> None:
    folded = fold_signals([FORM, RECORD], CONTEXT, lambda _: ())

    form, record = folded.content.drafts
    assert (form.type, form.ref) == (BlockType.EXTERNAL_EVENT, f"ar:{TURN}.external.form.{FORM.id}")
    assert form.body == EventBody(signal_id=FORM.id, kind="form", text="sent", payload={"total": 7}, credit=2)
    assert record.body == EventBody(signal_id=RECORD.id, kind="alert", text="noted", reactive=False)
    (reported, _), _ = folded.content.after
    assert isinstance(reported, ChatSignal) and reported.event is not None
    assert (reported.kind, reported.event.kind, reported.event.reactive) == ("event", "form", True)


def test_the_beginning_of_a_text_file_follows_its_signal() -> None:
    artifact = make_artifact(TURN, "a.txt")
    preview = AttachmentTextBody(filename="a.txt", text="hello", total_chars=5)

    folded = fold_signals([replace(FORM, attachments=(artifact,))], CONTEXT, lambda _: (), {artifact.ref: preview})

    assert [draft.type for draft in folded.content.drafts] == [BlockType.EXTERNAL_EVENT, BlockType.ATTACHMENT_TEXT]
    assert (folded.content.drafts[1].ref, folded.content.drafts[1].body) == (artifact.ref, preview)


@pytest.mark.parametrize("event", [None, ExternalEvent("Not A Kind")])
def test_only_a_signal_without_a_valid_block_is_rejected(event: ExternalEvent | None) -> None:
    folded = fold_signals([replace(FORM, event=event), FOLLOWUP], CONTEXT, lambda _: ())

    assert [change.state for change in folded.content.signals] == [SignalState.REJECTED, SignalState.APPLIED]
    assert [draft.type for draft in folded.content.drafts] == [BlockType.USER_FOLLOWUP]


def test_a_late_event_moves_to_the_next_turn_unless_only_recorded() -> None:
    late_signals = settle_late_signals([RECORD, FORM, FOLLOWUP], CONTEXT, lambda: NEXT, lambda _: ())

    assert late_signals.promote == Promotion((FORM.id, FOLLOWUP.id), NEXT, "more")
    assert late_signals.content.signals == (SignalChange(RECORD.id, SignalState.APPLIED, 3),)
    assert [draft.type for draft in late_signals.content.drafts] == [BlockType.EXTERNAL_EVENT]


def test_messages_become_blocks_and_all_signals_get_receipts() -> None:
    folded = fold_signals([FOLLOWUP, STEER, CANCEL], CONTEXT, lambda _: ())

    drafts = folded.content.drafts
    assert [draft.type for draft in drafts] == [BlockType.USER_FOLLOWUP, BlockType.USER_STEER]
    assert [draft.body for draft in drafts] == [
        SignalBody(signal_id=FOLLOWUP.id, text="more"),
        SignalBody(signal_id=STEER.id, text="left"),
    ]
    assert [change.signal_id for change in folded.content.signals] == [FOLLOWUP.id, STEER.id, CANCEL.id]
    assert {change.state for change in folded.content.signals} == {SignalState.APPLIED}
    assert {event.round for event, _ in folded.content.after if isinstance(event, ChatSignal)} == {3}


def test_what_signals_mean_for_the_turn() -> None:
    cancelled = fold_signals([CANCEL], CONTEXT, lambda _: ())
    stopped = fold_signals([STOP], CONTEXT, lambda _: ())
    goes_on = fold_signals([FOLLOWUP, STEER], CONTEXT, lambda _: ())

    assert (cancelled.cancel, stopped.cancel, goes_on.cancel) == (True, False, False)
    assert (stopped.stop, goes_on.stop) == (True, False)


def test_messages_after_the_last_end_are_left_for_the_next_turn() -> None:
    assert through_last_end([FOLLOWUP, STEER]) == ()
    assert through_last_end([FOLLOWUP, CANCEL, STEER, STOP, FOLLOWUP]) == (FOLLOWUP, CANCEL, STEER, STOP)


def test_late_messages_become_one_next_turn_and_the_rest_expires() -> None:
    late_signals = settle_late_signals([FOLLOWUP, CANCEL, STEER], CONTEXT, lambda: NEXT, lambda _: ())

    assert late_signals.promote == Promotion((FOLLOWUP.id, STEER.id), NEXT, "more\n\nleft")
    assert late_signals.content.signals == (SignalChange(CANCEL.id, SignalState.EXPIRED),)
    receipts = {event.signal_id: event for event, _ in late_signals.content.after if isinstance(event, ChatSignal)}
    assert (receipts[STEER.id].state, receipts[STEER.id].promoted_to) == ("promoted", NEXT)
    assert (receipts[CANCEL.id].state, receipts[CANCEL.id].promoted_to) == ("expired", None)


def test_without_late_messages_there_is_no_next_turn() -> None:
    def never() -> TurnId:
        raise AssertionError("no id is needed")

    assert settle_late_signals([CANCEL], CONTEXT, never, lambda _: ()).promote is None
