"""The contract of Inbox as tests; a subclass or its module defines the fixture `stage`."""

from dataclasses import replace
from datetime import timedelta

import pytest

from everturn.core.errors import Conflict, Invalid, NotFound
from everturn.core.identity import Lane
from everturn.core.ids import SignalId
from everturn.timeline.turns import SignalKind, SignalState, TurnStatus
from everturn.turns.inbox import (
    MAX_CONTROL_TEXT_CHARS,
    MAX_OPEN_SIGNALS,
    MAX_TURN_SIGNAL_BYTES,
    MAX_TURN_SIGNALS,
    UPLOAD_LIMIT,
    IdempotencyKey,
    InboxFull,
    IncomingMessage,
    KeyReused,
    UploadTooLate,
)
from everturn_testing.turns.stage import STRANGERS, Stage, closing, turn_of


class InboxContract:
    """Required of every Inbox."""

    async def test_a_message_to_a_new_conversation_opens_its_first_turn(self, stage: Stage) -> None:
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        receipt = await stage.say("Hello \x00 \u202e\n", trace=trace, time_zone="Asia/Tokyo")

        turn = await stage.timelines.load_turn(stage.principal, turn_of(receipt))
        assert (turn.ordinal, turn.status, turn.request.text) == (1, TurnStatus.QUEUED, "Hello \x00 \u202e\n")
        assert (turn.request.trace, turn.request.time_zone) == (trace, "Asia/Tokyo")
        assert (receipt.signal_id, receipt.ring, receipt.lane) == (None, True, Lane.PAID)

    async def test_a_message_to_a_busy_conversation_becomes_a_followup(self, stage: Stage) -> None:
        claim = await stage.start_turn()

        receipt = await stage.say("And this.", claim.lease.conversation_id)

        (signal,) = await stage.timelines.load_signals(stage.principal, turn_of(receipt))
        assert (signal.id, signal.kind, signal.text) == (receipt.signal_id, SignalKind.FOLLOWUP, "And this.")
        assert (receipt.turn_id, receipt.state, receipt.ring) == (claim.turn_id, SignalState.ACCEPTED, False)

    async def test_a_message_after_a_turn_has_ended_opens_the_next_one(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        await stage.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq, failed=True))

        receipt = await stage.say("Again.", claim.lease.conversation_id)

        assert receipt.signal_id is None
        assert (await stage.timelines.load_turn(stage.principal, turn_of(receipt))).ordinal == 2

    async def test_the_same_key_gets_the_first_answer_and_does_nothing(self, stage: Stage) -> None:
        key = IdempotencyKey("messages", stage.ids.call(), "hash")
        first = await stage.say(key=key)

        again = await stage.say(key=key)

        assert again.replayed and not again.ring
        assert (again.conversation_id, again.turn_id) == (first.conversation_id, first.turn_id)
        assert await stage.timelines.load_signals(stage.principal, turn_of(first)) == ()

    async def test_the_same_key_for_another_request_is_refused(self, stage: Stage) -> None:
        key = stage.ids.call()
        await stage.say(key=IdempotencyKey("messages", key, "hash"))

        with pytest.raises(KeyReused):
            await stage.say(key=IdempotencyKey("messages", key, "other"))

    async def test_the_same_key_on_another_route_is_another_key(self, stage: Stage) -> None:
        key = stage.ids.call()
        await stage.say(key=IdempotencyKey("messages", key, "hash"))

        receipt = await stage.say(key=IdempotencyKey("signals", key, "other"))

        assert not receipt.replayed

    async def test_a_target_that_is_not_the_open_turn_is_refused_and_leaves_nothing(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        message = IncomingMessage(
            conversation_id, False, "x", (), stage.ids.turn(), stage.ids.signal(), target_turn_id=stage.ids.turn()
        )

        with pytest.raises(Conflict):
            await stage.inbox.accept_message(stage.principal, message, None)

        assert await stage.leases.renew({conversation_id: claim.lease.fence}) == {conversation_id: claim.inbox_seq}

    async def test_a_signal_needs_an_open_turn(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        await stage.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))

        with pytest.raises(Conflict):
            await stage.signal(claim.lease.conversation_id, SignalKind.STEER, "left")

    async def test_only_the_cancel_of_a_queued_turn_rings_on_the_control_lane(self, stage: Stage) -> None:
        receipt = await stage.say()

        queued = await stage.signal(receipt.conversation_id, SignalKind.CANCEL)
        await stage.claim(receipt.conversation_id)
        running = await stage.signal(receipt.conversation_id, SignalKind.CANCEL)

        assert (queued.ring, queued.lane) == (True, Lane.CONTROL)
        assert not running.ring

    async def test_signals_are_in_the_order_of_arrival(self, stage: Stage) -> None:
        claim = await stage.start_turn()

        receipts = [await stage.say(text, claim.lease.conversation_id) for text in "cab"]

        signals = await stage.timelines.load_signals(stage.principal, turn_of(receipts[0]))
        assert [signal.text for signal in signals] == ["c", "a", "b"]

    async def test_a_full_inbox_accepts_only_cancels(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        receipts = [await stage.say("More.", conversation_id) for _ in range(MAX_OPEN_SIGNALS)]

        with pytest.raises(InboxFull):
            await stage.say("One too many.", conversation_id)
        cancel = await stage.signal(conversation_id, SignalKind.CANCEL)

        assert cancel.signal_id is not None
        for signal_id in (cancel.signal_id, receipts[0].signal_id):
            assert signal_id is not None
            await stage.inbox.retract_signal(stage.principal, conversation_id, signal_id)
        await stage.say("Now there is room.", conversation_id)

    async def test_the_signals_of_a_turn_are_limited_but_a_cancel_is_accepted(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        for _ in range(MAX_TURN_SIGNALS):
            receipt = await stage.say("More.", conversation_id)
            assert receipt.signal_id is not None
            await stage.inbox.retract_signal(stage.principal, conversation_id, receipt.signal_id)

        with pytest.raises(InboxFull, match=f"already has {MAX_TURN_SIGNALS}"):
            await stage.say("One too many.", conversation_id)

        assert (await stage.signal(conversation_id, SignalKind.CANCEL)).signal_id is not None

    async def test_the_last_cancels_of_a_turn_can_not_be_retracted(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        retracted: list[SignalId] = []
        for _ in range(MAX_TURN_SIGNALS):
            cancel = await stage.signal(conversation_id, SignalKind.CANCEL)
            assert cancel.signal_id is not None
            retracted.append(cancel.signal_id)
            await stage.inbox.retract_signal(stage.principal, conversation_id, cancel.signal_id)
        last = await stage.signal(conversation_id, SignalKind.CANCEL)
        assert last.signal_id is not None

        with pytest.raises(Conflict, match="can't be retracted"):
            await stage.inbox.retract_signal(stage.principal, conversation_id, last.signal_id)

        again = await stage.inbox.retract_signal(stage.principal, conversation_id, retracted[-1])
        assert again.state is SignalState.RETRACTED

    async def test_the_messages_of_a_turn_have_a_total_size_limit(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        first = await stage.signal(conversation_id, SignalKind.CANCEL)
        await stage.say("x" * (MAX_TURN_SIGNAL_BYTES + 1), conversation_id)

        with pytest.raises(Conflict, match="8 MiB"):
            await stage.say("One too many.", conversation_id)

        cancel = await stage.signal(conversation_id, SignalKind.CANCEL)
        assert cancel.signal_id is not None and cancel.signal_id != first.signal_id
        edited = await stage.inbox.save_signal_text(
            stage.principal, conversation_id, cancel.signal_id, "x" * MAX_CONTROL_TEXT_CHARS
        )
        assert edited.kind is SignalKind.CANCEL

    async def test_the_reason_of_a_cancel_is_short(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id

        with pytest.raises(Invalid, match="10,000 characters"):
            await stage.signal(conversation_id, SignalKind.CANCEL, "x" * (MAX_CONTROL_TEXT_CHARS + 1))

        cancel = await stage.signal(conversation_id, SignalKind.CANCEL, "x" * MAX_CONTROL_TEXT_CHARS)
        assert cancel.signal_id is not None
        with pytest.raises(Invalid):
            await stage.inbox.save_signal_text(
                stage.principal, conversation_id, cancel.signal_id, "x" * (MAX_CONTROL_TEXT_CHARS + 1)
            )

    async def test_an_edit_can_not_make_the_messages_of_a_turn_too_large(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        (first, second) = [await stage.say("More.", conversation_id) for _ in range(2)]
        assert first.signal_id is not None and second.signal_id is not None

        with pytest.raises(Conflict, match="Shorten it"):
            await stage.inbox.save_signal_text(
                stage.principal, conversation_id, first.signal_id, "x" * MAX_TURN_SIGNAL_BYTES
            )

        kept = await stage.inbox.load_signal(stage.principal, conversation_id, first.signal_id)
        assert kept.text == "More."

    async def test_an_edit_with_as_many_characters_but_more_bytes_is_measured(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        await stage.say("More.", conversation_id)
        long = MAX_TURN_SIGNAL_BYTES // 2
        receipt = await stage.say("x" * long, conversation_id)
        assert receipt.signal_id is not None

        with pytest.raises(Conflict, match="Shorten it"):
            await stage.inbox.save_signal_text(stage.principal, conversation_id, receipt.signal_id, "\U0001f600" * long)

    async def test_an_accepted_signal_can_be_edited_and_the_edit_counts_as_news(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        receipt = await stage.say("wrong", conversation_id)
        assert receipt.signal_id is not None
        before = (await stage.leases.renew({conversation_id: claim.lease.fence}))[conversation_id]

        await stage.inbox.save_signal_text(stage.principal, conversation_id, receipt.signal_id, "right")

        after = (await stage.leases.renew({conversation_id: claim.lease.fence}))[conversation_id]
        signal = await stage.inbox.load_signal(stage.principal, conversation_id, receipt.signal_id)
        assert (signal.text, signal.state) == ("right", SignalState.ACCEPTED)
        assert before is not None and after is not None and after > before

    async def test_a_retracted_signal_is_gone_for_good(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        receipt = await stage.say("oops", conversation_id)
        assert receipt.signal_id is not None

        await stage.inbox.retract_signal(stage.principal, conversation_id, receipt.signal_id)
        again = await stage.inbox.retract_signal(stage.principal, conversation_id, receipt.signal_id)

        assert again.state is SignalState.RETRACTED
        assert await stage.timelines.load_signals(stage.principal, turn_of(receipt)) == (again,)
        with pytest.raises(Conflict):
            await stage.inbox.save_signal_text(stage.principal, conversation_id, receipt.signal_id, "x")

    async def test_uploads_belong_to_the_turn_or_signal(self, stage: Stage) -> None:
        receipt = await stage.say(uploads=(stage.upload(),))
        followup = await stage.say("More.", receipt.conversation_id, uploads=(stage.upload(),))

        turn = await stage.timelines.load_turn(stage.principal, turn_of(receipt))
        (signal,) = await stage.timelines.load_signals(stage.principal, turn_of(receipt))
        assert turn.request.attachments[0].path == f"{receipt.turn_id}/attachments/sales.csv"
        assert str(followup.signal_id) in signal.attachments[0].path

    async def test_other_owners_can_neither_send_nor_see_anything(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        receipt = await stage.say("mine", conversation_id)
        assert receipt.signal_id is not None

        for stranger in STRANGERS:
            message = IncomingMessage(conversation_id, False, "x", (), stage.ids.turn(), stage.ids.signal())
            with pytest.raises(NotFound):
                await stage.inbox.accept_message(stranger, message, None)
            with pytest.raises(NotFound):
                await stage.inbox.load_signal(stranger, conversation_id, receipt.signal_id)
            with pytest.raises(NotFound):
                await stage.inbox.retract_signal(stranger, conversation_id, receipt.signal_id)


class UploadsContract:
    """Files that were stored some time ago."""

    async def test_an_upload_that_began_too_long_ago_is_refused(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        begun_at = await stage.inbox.load_now() - UPLOAD_LIMIT
        late = replace(stage.upload(), begun_at=begun_at - timedelta(seconds=1))
        in_time = replace(stage.upload(), begun_at=begun_at + timedelta(seconds=60))

        with pytest.raises(UploadTooLate):
            await stage.say("This.", conversation_id, uploads=(in_time, late))
        with pytest.raises(UploadTooLate):
            await stage.signal(conversation_id, SignalKind.FOLLOWUP, "This.", uploads=(late,))
        await stage.say("That.", conversation_id, uploads=(in_time,))

        signals = await stage.timelines.load_signals(stage.principal, turn_of(await stage.say("Y.", conversation_id)))
        assert [signal.text for signal in signals] == ["That.", "Y."]
