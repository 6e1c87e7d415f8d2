"""The contract of Inbox and Timelines about external events and targets; a subclass or its module defines `harness`."""

import pytest

from everturn.core.errors import Conflict
from everturn.core.ids import ConversationId
from everturn.core.refs import ExternalAttachmentRef
from everturn.timeline.blocks import EventBody
from everturn.timeline.turns import ExternalEvent, RequestEvent, SignalKind, SignalState
from everturn.turns.inbox import MAX_OPEN_SIGNALS, InboxFull, IncomingMessage
from everturn.turns.model import Promotion, SignalChange
from everturn.turns.ports import InboxMoved
from everturn_testing.turns.harness import Harness, closing, commit, turn_of, write

FORM = ExternalEvent("form", {"total": 7, "of": ["north"]}, iteration_credit=2)
RECORD = ExternalEvent("alert", {"level": "low"}, reactive=False)


class ExternalEventsContract:
    """Events to a busy conversation, and to one without an open turn."""

    async def test_an_event_to_a_running_turn_is_a_signal_with_its_data(self, harness: Harness) -> None:
        claim = await harness.start_turn()

        receipt = await harness.send_event(claim.lease.conversation_id, FORM, uploads=(harness.upload(),))

        (signal,) = await harness.timelines.load_signals(harness.principal, turn_of(receipt))
        assert (receipt.turn_id, receipt.ring, receipt.state) == (claim.turn_id, False, SignalState.ACCEPTED)
        assert (signal.kind, signal.text, signal.event) == (SignalKind.EVENT, "It rang.", FORM)
        ref = ExternalAttachmentRef(turn_of(receipt), "form", signal.id, "sales.csv")
        assert signal.attachments[0].ref == str(ref)

    async def test_a_reactive_event_opens_a_turn_when_idle(self, harness: Harness) -> None:
        conversation_id = await _idle_conversation(harness)

        receipt = await harness.send_event(conversation_id, FORM, uploads=(harness.upload(),))

        turn = await harness.timelines.load_turn(harness.principal, turn_of(receipt))
        (event,) = turn.request.events
        assert (receipt.signal_id, receipt.ring) == (None, True)
        assert (turn.ordinal, turn.request.text, turn.request.attachments) == (2, "", ())
        assert (event.text, event.event) == ("It rang.", FORM)
        assert event.attachments[0].path == f"{turn.id}/external/form/attachments/{event.id}/sales.csv"
        assert (await harness.claim(conversation_id)).turn_id == turn.id

    async def test_a_recorded_event_is_first_in_the_next_turn(self, harness: Harness) -> None:
        conversation_id = await _idle_conversation(harness)
        first = await harness.send_event(conversation_id, RECORD)
        second = await harness.send_event(conversation_id, RECORD, uploads=(harness.upload(),))
        assert await harness.leases.try_claim(conversation_id) is None

        opened = await harness.send_event(conversation_id, FORM)

        turn = await harness.timelines.load_turn(harness.principal, turn_of(opened))
        assert [event.event for event in turn.request.events] == [RECORD, RECORD, FORM]
        assert [event.id for event in turn.request.events[:2]] == [first.signal_id, second.signal_id]
        assert len(turn.request.events[1].attachments) == 1
        assert (first.turn_id, first.ring) == (None, False)
        for receipt in (first, second):
            assert receipt.signal_id is not None
            signal = await harness.inbox.load_signal(harness.principal, conversation_id, receipt.signal_id)
            assert (signal.state, signal.promoted_to, signal.turn_id) == (SignalState.PROMOTED, turn.id, None)

    async def test_a_message_includes_waiting_events(self, harness: Harness) -> None:
        conversation_id = await _idle_conversation(harness)
        waits = await harness.send_event(conversation_id, RECORD)
        assert waits.signal_id is not None

        opened = await harness.say("Anything new?", conversation_id)
        again = await harness.say("And now?", conversation_id)

        turn = await harness.timelines.load_turn(harness.principal, turn_of(opened))
        assert (turn.request.text, [event.id for event in turn.request.events]) == ("Anything new?", [waits.signal_id])
        assert again.turn_id == opened.turn_id

    async def test_a_waiting_event_can_be_edited_and_retracted(self, harness: Harness) -> None:
        conversation_id = await _idle_conversation(harness)
        edited, retracted = [await harness.send_event(conversation_id, RECORD) for _ in range(2)]
        assert edited.signal_id is not None and retracted.signal_id is not None

        await harness.inbox.save_signal_text(
            harness.principal, conversation_id, edited.signal_id, "It rang \x00 twice."
        )
        await harness.inbox.retract_signal(harness.principal, conversation_id, retracted.signal_id)

        turn = await harness.timelines.load_turn(harness.principal, turn_of(await harness.say("Now?", conversation_id)))
        assert turn.request.events == (RequestEvent(edited.signal_id, "It rang \x00 twice.", RECORD),)

    async def test_the_number_of_waiting_events_is_bounded(self, harness: Harness) -> None:
        conversation_id = await _idle_conversation(harness)
        for _ in range(MAX_OPEN_SIGNALS):
            await harness.send_event(conversation_id, RECORD)

        with pytest.raises(InboxFull):
            await harness.send_event(conversation_id, RECORD)

    async def test_a_late_event_begins_the_next_turn_with_its_data(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        event = ExternalEvent("form", {"total": 7})
        sent = await harness.send_event(conversation_id, event, uploads=(harness.upload(),))
        said = await harness.say("And this.", conversation_id, uploads=(harness.upload("b.csv"),))
        assert sent.signal_id is not None and said.signal_id is not None
        promotion = Promotion((sent.signal_id, said.signal_id), harness.ids.turn(), "And this.")

        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq + 2, promote=promotion))

        request = (await harness.timelines.load_turn(harness.principal, promotion.turn_id)).request
        assert [artifact.filename for artifact in request.attachments] == ["b.csv"]
        assert [(each.id, each.event, each.text) for each in request.events] == [(sent.signal_id, event, "It rang.")]
        assert [artifact.filename for artifact in request.events[0].attachments] == ["sales.csv"]

    async def test_an_event_that_was_edited_meanwhile_is_not_applied(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        sent = await harness.send_event(claim.lease.conversation_id, ExternalEvent("form"))
        assert sent.signal_id is not None
        await harness.inbox.save_signal_text(harness.principal, sent.conversation_id, sent.signal_id, "It rang twice.")
        blocks = write(claim, EventBody(signal_id=sent.signal_id, kind="form", text="It rang."))
        applied = SignalChange(sent.signal_id, SignalState.APPLIED, round=1)

        with pytest.raises(InboxMoved):
            await harness.timelines.commit(claim.lease, commit(claim, blocks, applied))


class TargetsContract:
    """Signals to a turn that is not the open one."""

    async def test_a_signal_for_a_turn_that_has_ended_is_refused(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        conversation_id = claim.lease.conversation_id

        for kind, event in ((SignalKind.STEER, None), (SignalKind.CANCEL, None), (SignalKind.EVENT, FORM)):
            with pytest.raises(Conflict):
                await harness.signal(conversation_id, kind, "late", event=event, target=claim.turn_id)

        assert await harness.leases.renew({conversation_id: claim.lease.fence}) == {conversation_id: claim.inbox_seq}

    async def test_a_message_for_a_turn_that_has_ended_becomes_the_next_turn(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        conversation_id = claim.lease.conversation_id
        message = IncomingMessage(
            conversation_id, False, "late", (), harness.ids.turn(), harness.ids.signal(), target_turn_id=claim.turn_id
        )

        receipt = await harness.inbox.accept_message(harness.principal, message, None)

        assert (await harness.timelines.load_turn(harness.principal, turn_of(receipt))).ordinal == 2

    async def test_a_message_for_a_turn_of_another_conversation_is_refused(self, harness: Harness) -> None:
        conversation_id, other = await _idle_conversation(harness), await harness.say("Elsewhere.")
        message = IncomingMessage(
            conversation_id, False, "x", (), harness.ids.turn(), harness.ids.signal(), target_turn_id=other.turn_id
        )

        with pytest.raises(Conflict):
            await harness.inbox.accept_message(harness.principal, message, None)
        assert await harness.leases.try_claim(conversation_id) is None


async def _idle_conversation(harness: Harness) -> ConversationId:
    """A conversation whose first turn has ended."""
    claim = await harness.start_turn()
    await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
    assert claim.turn_id is not None
    await harness.leases.mark_announced(claim.lease, claim.turn_id, claim.cursor)
    await harness.leases.release(claim.lease, requeue=False)
    return claim.lease.conversation_id
