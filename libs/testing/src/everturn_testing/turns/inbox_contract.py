"""The contract of Inbox as tests; a subclass or its module defines the fixture `harness`."""

from dataclasses import replace
from datetime import timedelta

import pytest

from everturn.core.errors import Conflict, Invalid, NotFound
from everturn.core.identity import Lane
from everturn.core.ids import SignalId
from everturn.timeline.turns import ExternalEvent, SignalKind, SignalState, TurnStatus
from everturn.turns.inbox import (
    MAX_CONTROL_TEXT_CHARS,
    MAX_OPEN_SIGNALS,
    MAX_TURN_SIGNAL_BYTES,
    MAX_TURN_SIGNALS,
    UPLOAD_LIMIT,
    IdempotencyKey,
    InboxFull,
    IncomingMessage,
    IncomingSignal,
    KeyReused,
    UnknownBundle,
    UploadTooLate,
)
from everturn_testing.turns.harness import STRANGERS, Harness, closing, turn_of


class InboxContract:
    """Required of every Inbox."""

    async def test_a_message_to_a_new_conversation_opens_its_first_turn(self, harness: Harness) -> None:
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        receipt = await harness.say("Hello \x00 \u202e\n", trace=trace, time_zone="Asia/Tokyo")

        turn = await harness.timelines.load_turn(harness.principal, turn_of(receipt))
        assert (turn.ordinal, turn.status, turn.request.text) == (1, TurnStatus.QUEUED, "Hello \x00 \u202e\n")
        assert (turn.request.trace, turn.request.time_zone) == (trace, "Asia/Tokyo")
        assert (receipt.signal_id, receipt.ring, receipt.lane) == (None, True, Lane.PAID)

    async def test_a_message_to_a_busy_conversation_becomes_a_followup(self, harness: Harness) -> None:
        claim = await harness.start_turn()

        receipt = await harness.say("And this.", claim.lease.conversation_id)

        (signal,) = await harness.timelines.load_signals(harness.principal, turn_of(receipt))
        assert (signal.id, signal.kind, signal.text) == (receipt.signal_id, SignalKind.FOLLOWUP, "And this.")
        assert (receipt.turn_id, receipt.state, receipt.ring) == (claim.turn_id, SignalState.ACCEPTED, False)

    async def test_a_message_after_a_turn_has_ended_opens_the_next_one(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq, failed=True))

        receipt = await harness.say("Again.", claim.lease.conversation_id)

        assert receipt.signal_id is None
        assert (await harness.timelines.load_turn(harness.principal, turn_of(receipt))).ordinal == 2

    async def test_a_turn_has_the_bundle_of_its_message_or_conversation(self, harness: Harness) -> None:
        named = 'a "named" \\ one'
        first = IncomingMessage(
            harness.ids.conversation(), True, "x", (), harness.ids.turn(), harness.ids.signal(), bundle_id=named
        )
        bundles: list[str | None] = []
        for create, bundle_id in ((True, named), (False, None), (False, "other")):
            turn_id = harness.ids.turn()
            message = replace(first, create=create, turn_id=turn_id, bundle_id=bundle_id)
            await harness.inbox.accept_message(harness.principal, message, None)
            claim = await harness.claim(first.conversation_id)
            await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
            await harness.leases.release(claim.lease, requeue=False)
            bundles.append((await harness.timelines.load_turn(harness.principal, turn_id)).request.bundle_id)

        assert bundles == [named, named, "other"]

    @pytest.mark.parametrize(
        ("own", "named", "open_bundles", "is_accepted"),
        [
            (None, None, {"default"}, True),
            (None, None, {"desk"}, False),
            ("desk", None, {"default", "desk"}, True),
            ("desk", None, {"default"}, False),
            ("desk", "help", {"help"}, True),
            ("default", None, {"default"}, True),
            ("desk", None, set[str](), False),
            ("desk", None, None, True),
        ],
    )
    async def test_a_turn_needs_a_bundle_that_is_open_to_its_person(
        self, harness: Harness, own: str | None, named: str | None, open_bundles: set[str] | None, is_accepted: bool
    ) -> None:
        opened = await self._open_conversation(harness, own)
        allowed = None if open_bundles is None else frozenset(open_bundles)
        key = IdempotencyKey("messages", harness.ids.call(), "hash")
        message = replace(opened, create=False, turn_id=harness.ids.turn(), bundle_id=named, open_bundles=allowed)

        if is_accepted:
            receipt = await harness.inbox.accept_message(harness.principal, message, key)
            turn = await harness.timelines.load_turn(harness.principal, turn_of(receipt))
            assert turn.request.bundle_id == (named or own)
            # A repeated request gets its answer, also if it would be refused now.
            refused = replace(message, open_bundles=frozenset[str]())
            assert (await harness.inbox.accept_message(harness.principal, refused, key)).replayed
        else:
            with pytest.raises(UnknownBundle):
                await harness.inbox.accept_message(harness.principal, message, key)
            assert await harness.inbox.try_load_receipt(harness.principal, key) is None
            assert await harness.leases.try_claim(opened.conversation_id) is None

    async def test_a_refused_first_message_creates_no_conversation(self, harness: Harness) -> None:
        first = IncomingMessage(
            harness.ids.conversation(), True, "x", (), harness.ids.turn(), harness.ids.signal(),
            open_bundles=frozenset({"desk"}),
        )  # fmt: skip

        with pytest.raises(UnknownBundle):
            await harness.inbox.accept_message(harness.principal, first, None)
        with pytest.raises(NotFound):
            await harness.inbox.accept_message(harness.principal, replace(first, create=False), None)

    async def test_an_event_opens_no_turn_of_a_bundle_that_is_not_open(self, harness: Harness) -> None:
        opened = await self._open_conversation(harness, "desk")
        event = ExternalEvent("form", {}, reactive=True)
        signal = IncomingSignal(
            harness.ids.signal(), SignalKind.EVENT, "", (), None, event, harness.ids.turn(),
            open_bundles=frozenset({"default"}),
        )  # fmt: skip

        with pytest.raises(UnknownBundle):
            await harness.inbox.accept_signal(harness.principal, opened.conversation_id, signal, None)
        recorded = replace(signal, event=replace(event, reactive=False))
        waiting = await harness.inbox.accept_signal(harness.principal, opened.conversation_id, recorded, None)

        assert waiting.turn_id is None

    async def test_a_signal_reaches_a_turn_whose_bundle_is_no_longer_open(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        message = IncomingMessage(
            claim.lease.conversation_id, False, "x", (), harness.ids.turn(), harness.ids.signal(),
            open_bundles=frozenset[str](),
        )  # fmt: skip

        receipt = await harness.inbox.accept_message(harness.principal, message, None)

        assert receipt.turn_id == claim.turn_id

    async def _open_conversation(self, harness: Harness, bundle_id: str | None) -> IncomingMessage:
        """The first message of a conversation with this bundle, whose turn has ended."""
        first = IncomingMessage(
            harness.ids.conversation(), True, "x", (), harness.ids.turn(), harness.ids.signal(), bundle_id=bundle_id
        )
        await harness.inbox.accept_message(harness.principal, first, None)
        claim = await harness.claim(first.conversation_id)
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        await harness.leases.mark_announced(claim.lease, first.turn_id, claim.cursor)
        await harness.leases.release(claim.lease, requeue=False)
        return replace(first, signal_id=harness.ids.signal())

    async def test_the_same_key_gets_the_first_answer_and_does_nothing(self, harness: Harness) -> None:
        key = IdempotencyKey("messages", harness.ids.call(), "hash")
        first = await harness.say(key=key)

        again = await harness.say(key=key)

        assert again.replayed and not again.ring
        assert (again.conversation_id, again.turn_id) == (first.conversation_id, first.turn_id)
        assert await harness.timelines.load_signals(harness.principal, turn_of(first)) == ()

    async def test_the_same_key_for_another_request_is_refused(self, harness: Harness) -> None:
        key = harness.ids.call()
        await harness.say(key=IdempotencyKey("messages", key, "hash"))

        with pytest.raises(KeyReused):
            await harness.say(key=IdempotencyKey("messages", key, "other"))

    async def test_a_refused_request_does_not_use_its_key(self, harness: Harness) -> None:
        key = IdempotencyKey("messages", harness.ids.call(), "hash")
        with pytest.raises(NotFound):
            await harness.say("x", harness.ids.conversation(), key=key)

        receipt = await harness.say(key=replace(key, request_hash="other"))

        assert not receipt.replayed

    async def test_the_same_key_on_another_route_is_another_key(self, harness: Harness) -> None:
        key = harness.ids.call()
        await harness.say(key=IdempotencyKey("messages", key, "hash"))

        receipt = await harness.say(key=IdempotencyKey("signals", key, "other"))

        assert not receipt.replayed

    async def test_a_target_that_is_not_the_open_turn_is_refused_and_leaves_nothing(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        message = IncomingMessage(
            conversation_id, False, "x", (), harness.ids.turn(), harness.ids.signal(), target_turn_id=harness.ids.turn()
        )

        with pytest.raises(Conflict):
            await harness.inbox.accept_message(harness.principal, message, None)

        assert await harness.leases.renew({conversation_id: claim.lease.fence}) == {conversation_id: claim.inbox_seq}

    async def test_a_message_with_a_target_does_not_create_a_conversation(self, harness: Harness) -> None:
        elsewhere, conversation_id = await harness.say(), harness.ids.conversation()
        message = IncomingMessage(
            conversation_id,
            True,
            "x",
            (),
            harness.ids.turn(),
            harness.ids.signal(),
            target_turn_id=turn_of(elsewhere),
        )

        with pytest.raises(Conflict):
            await harness.inbox.accept_message(harness.principal, message, None)
        with pytest.raises(NotFound):
            await harness.say("x", conversation_id)

    async def test_a_signal_needs_an_open_turn(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))

        with pytest.raises(Conflict):
            await harness.signal(claim.lease.conversation_id, SignalKind.STEER, "left")

    async def test_only_the_cancel_of_a_queued_turn_rings_on_the_control_lane(self, harness: Harness) -> None:
        receipt = await harness.say()

        queued = await harness.signal(receipt.conversation_id, SignalKind.CANCEL)
        await harness.claim(receipt.conversation_id)
        running = await harness.signal(receipt.conversation_id, SignalKind.CANCEL)

        assert (queued.ring, queued.lane) == (True, Lane.CONTROL)
        assert not running.ring

    async def test_signals_are_in_the_order_of_arrival(self, harness: Harness) -> None:
        claim = await harness.start_turn()

        receipts = [await harness.say(text, claim.lease.conversation_id) for text in "cab"]

        signals = await harness.timelines.load_signals(harness.principal, turn_of(receipts[0]))
        assert [signal.text for signal in signals] == ["c", "a", "b"]

    async def test_a_full_inbox_accepts_only_cancels(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        receipts = [await harness.say("More.", conversation_id) for _ in range(MAX_OPEN_SIGNALS)]

        with pytest.raises(InboxFull):
            await harness.say("One too many.", conversation_id)
        cancel = await harness.signal(conversation_id, SignalKind.CANCEL)

        assert cancel.signal_id is not None
        for signal_id in (cancel.signal_id, receipts[0].signal_id):
            assert signal_id is not None
            await harness.inbox.retract_signal(harness.principal, conversation_id, signal_id)
        await harness.say("Now there is room.", conversation_id)

    async def test_the_signals_of_a_turn_are_limited_but_a_cancel_is_accepted(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        for _ in range(MAX_TURN_SIGNALS):
            receipt = await harness.say("More.", conversation_id)
            assert receipt.signal_id is not None
            await harness.inbox.retract_signal(harness.principal, conversation_id, receipt.signal_id)

        with pytest.raises(InboxFull, match=f"already has {MAX_TURN_SIGNALS}"):
            await harness.say("One too many.", conversation_id)

        assert (await harness.signal(conversation_id, SignalKind.CANCEL)).signal_id is not None

    async def test_the_last_cancels_of_a_turn_can_not_be_retracted(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        retracted: list[SignalId] = []
        for _ in range(MAX_TURN_SIGNALS):
            cancel = await harness.signal(conversation_id, SignalKind.CANCEL)
            assert cancel.signal_id is not None
            retracted.append(cancel.signal_id)
            await harness.inbox.retract_signal(harness.principal, conversation_id, cancel.signal_id)
        last = await harness.signal(conversation_id, SignalKind.CANCEL)
        assert last.signal_id is not None

        with pytest.raises(Conflict, match="can't be retracted"):
            await harness.inbox.retract_signal(harness.principal, conversation_id, last.signal_id)

        again = await harness.inbox.retract_signal(harness.principal, conversation_id, retracted[-1])
        assert again.state is SignalState.RETRACTED

    async def test_the_messages_of_a_turn_have_a_total_size_limit(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        first = await harness.signal(conversation_id, SignalKind.CANCEL)
        await harness.say("x" * (MAX_TURN_SIGNAL_BYTES + 1), conversation_id)

        with pytest.raises(Conflict, match="8 MiB"):
            await harness.say("One too many.", conversation_id)

        cancel = await harness.signal(conversation_id, SignalKind.CANCEL)
        assert cancel.signal_id is not None and cancel.signal_id != first.signal_id
        edited = await harness.inbox.save_signal_text(
            harness.principal, conversation_id, cancel.signal_id, "x" * MAX_CONTROL_TEXT_CHARS
        )
        assert edited.kind is SignalKind.CANCEL

    async def test_the_reason_of_a_cancel_is_short(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id

        with pytest.raises(Invalid, match="10,000 characters"):
            await harness.signal(conversation_id, SignalKind.CANCEL, "x" * (MAX_CONTROL_TEXT_CHARS + 1))

        cancel = await harness.signal(conversation_id, SignalKind.CANCEL, "x" * MAX_CONTROL_TEXT_CHARS)
        assert cancel.signal_id is not None
        with pytest.raises(Invalid):
            await harness.inbox.save_signal_text(
                harness.principal, conversation_id, cancel.signal_id, "x" * (MAX_CONTROL_TEXT_CHARS + 1)
            )

    async def test_an_edit_can_not_make_the_messages_of_a_turn_too_large(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        (first, second) = [await harness.say("More.", conversation_id) for _ in range(2)]
        assert first.signal_id is not None and second.signal_id is not None

        with pytest.raises(Conflict, match="Shorten it"):
            await harness.inbox.save_signal_text(
                harness.principal, conversation_id, first.signal_id, "x" * MAX_TURN_SIGNAL_BYTES
            )

        kept = await harness.inbox.load_signal(harness.principal, conversation_id, first.signal_id)
        assert kept.text == "More."

    async def test_an_edit_with_as_many_characters_but_more_bytes_is_measured(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        await harness.say("More.", conversation_id)
        long = MAX_TURN_SIGNAL_BYTES // 2
        receipt = await harness.say("x" * long, conversation_id)
        assert receipt.signal_id is not None

        with pytest.raises(Conflict, match="Shorten it"):
            await harness.inbox.save_signal_text(
                harness.principal, conversation_id, receipt.signal_id, "\U0001f600" * long
            )

    async def test_an_accepted_signal_can_be_edited_and_the_edit_counts_as_news(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        receipt = await harness.say("wrong", conversation_id)
        assert receipt.signal_id is not None
        before = (await harness.leases.renew({conversation_id: claim.lease.fence}))[conversation_id]

        await harness.inbox.save_signal_text(harness.principal, conversation_id, receipt.signal_id, "right")

        after = (await harness.leases.renew({conversation_id: claim.lease.fence}))[conversation_id]
        signal = await harness.inbox.load_signal(harness.principal, conversation_id, receipt.signal_id)
        assert (signal.text, signal.state) == ("right", SignalState.ACCEPTED)
        assert before is not None and after is not None and after > before

    async def test_a_retracted_signal_is_gone_for_good(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        receipt = await harness.say("oops", conversation_id)
        assert receipt.signal_id is not None

        await harness.inbox.retract_signal(harness.principal, conversation_id, receipt.signal_id)
        again = await harness.inbox.retract_signal(harness.principal, conversation_id, receipt.signal_id)

        assert again.state is SignalState.RETRACTED
        assert await harness.timelines.load_signals(harness.principal, turn_of(receipt)) == (again,)
        with pytest.raises(Conflict):
            await harness.inbox.save_signal_text(harness.principal, conversation_id, receipt.signal_id, "x")

    async def test_uploads_belong_to_the_turn_or_signal(self, harness: Harness) -> None:
        receipt = await harness.say(uploads=(harness.upload(),))
        followup = await harness.say("More.", receipt.conversation_id, uploads=(harness.upload(),))

        turn = await harness.timelines.load_turn(harness.principal, turn_of(receipt))
        (signal,) = await harness.timelines.load_signals(harness.principal, turn_of(receipt))
        assert turn.request.attachments[0].path == f"{receipt.turn_id}/attachments/sales.csv"
        assert str(followup.signal_id) in signal.attachments[0].path

    async def test_other_owners_can_neither_send_nor_see_anything(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        receipt = await harness.say("mine", conversation_id)
        assert receipt.signal_id is not None

        for stranger in STRANGERS:
            message = IncomingMessage(conversation_id, False, "x", (), harness.ids.turn(), harness.ids.signal())
            with pytest.raises(NotFound):
                await harness.inbox.accept_message(stranger, message, None)
            with pytest.raises(NotFound):
                await harness.inbox.load_signal(stranger, conversation_id, receipt.signal_id)
            with pytest.raises(NotFound):
                await harness.inbox.retract_signal(stranger, conversation_id, receipt.signal_id)


class UploadsContract:
    """Files that were stored some time ago."""

    async def test_an_upload_that_began_too_long_ago_is_refused(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        begun_at = await harness.inbox.load_now() - UPLOAD_LIMIT
        late = replace(harness.upload(), begun_at=begun_at - timedelta(seconds=1))
        in_time = replace(harness.upload(), begun_at=begun_at + timedelta(seconds=60))

        with pytest.raises(UploadTooLate):
            await harness.say("A new turn.", uploads=(in_time, late))
        with pytest.raises(UploadTooLate):
            await harness.say("This.", conversation_id, uploads=(in_time, late))
        with pytest.raises(UploadTooLate):
            await harness.signal(conversation_id, SignalKind.FOLLOWUP, "This.", uploads=(late,))
        await harness.say("That.", conversation_id, uploads=(in_time,))

        signals = await harness.timelines.load_signals(
            harness.principal, turn_of(await harness.say("Y.", conversation_id))
        )
        assert [signal.text for signal in signals] == ["That.", "Y."]
