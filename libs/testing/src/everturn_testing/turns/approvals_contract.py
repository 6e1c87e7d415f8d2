"""The contract of approvals as tests: a subclass defines the fixtures `harness` and `approvals`."""

from datetime import datetime

import pytest

from everturn.core.errors import Conflict, NotFound
from everturn.core.ids import ApprovalId, CallId, ConversationId
from everturn.events.cursor import EventCursor
from everturn.timeline.turns import SignalKind, SignalState, TurnStatus
from everturn.turns.inbox import IncomingSignal, Receipt
from everturn.turns.model import ApprovalRequest, ApprovalState, Claim, Commit, approval_id_of
from everturn.turns.ports import Approvals, InboxMoved
from everturn_testing.turns.harness import STRANGERS, Harness, closing

LONG_S, OVER_S = 3600.0, -1.0


async def ask(harness: Harness, approvals: Approvals, claim: Claim, *, timeout_s: float = LONG_S) -> ApprovalId:
    """Ask another question in the claim's turn."""
    assert claim.turn_id is not None
    expires_at = await approvals.load_deadline(timeout_s=timeout_s)
    request = _request(harness.ids.call(), expires_at)
    cursor = EventCursor(claim.lease.fence, 1)
    await harness.timelines.commit(claim.lease, Commit(claim.turn_id, (), cursor, requests=(request,)))
    return request.id


def _request(call_id: CallId, expires_at: datetime) -> ApprovalRequest:
    return ApprovalRequest(approval_id_of(call_id), call_id, "mail.send", "0" * 64, expires_at)


async def answer(
    harness: Harness, conversation_id: ConversationId, approval_id: ApprovalId, kind: SignalKind, reason: str = ""
) -> Receipt:
    signal = IncomingSignal(harness.ids.signal(), kind, reason, approval_id=approval_id)
    return await harness.inbox.accept_signal(harness.principal, conversation_id, signal, None)


async def status_of(harness: Harness, claim: Claim) -> TurnStatus:
    assert claim.turn_id is not None
    return (await harness.timelines.load_turn(harness.principal, claim.turn_id)).status


async def states_of(harness: Harness, approvals: Approvals, claim: Claim) -> list[ApprovalState]:
    assert claim.turn_id is not None
    return [each.state for each in await approvals.load_of_turn(harness.principal, claim.turn_id)]


class ApprovalsContract:
    """Required of every Approvals together with its Inbox, Leases and Timelines."""

    async def test_a_parked_turn_has_no_lease_and_can_not_be_claimed(
        self, harness: Harness, approvals: Approvals
    ) -> None:
        claim = await harness.start_turn()
        await ask(harness, approvals, claim)

        assert await approvals.try_park(claim.lease)

        assert await status_of(harness, claim) is TurnStatus.WAITING
        assert await harness.leases.renew({claim.lease.conversation_id: claim.lease.fence}) == {}
        assert await harness.rival.try_claim(claim.lease.conversation_id) is None

    @pytest.mark.parametrize(
        ("kind", "state"),
        [(SignalKind.APPROVE, ApprovalState.APPROVED), (SignalKind.DENY, ApprovalState.DENIED)],
    )
    async def test_an_answer_wakes_the_turn_without_an_attempt(
        self, harness: Harness, approvals: Approvals, kind: SignalKind, state: ApprovalState
    ) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        approval_id = await ask(harness, approvals, claim)
        await approvals.try_park(claim.lease)

        receipt = await answer(harness, conversation_id, approval_id, kind, "Not on a Sunday.")

        assert (receipt.ring, receipt.state, receipt.turn_id) == (True, SignalState.ACCEPTED, claim.turn_id)
        taken = await harness.rival.try_claim(conversation_id)
        assert taken is not None
        assert claim.turn_id is not None
        assert (taken.turn_id, taken.attempt) == (claim.turn_id, 0)
        (approval,) = await approvals.load_of_turn(harness.principal, claim.turn_id)
        assert (approval.state, approval.signal_id) == (state, receipt.signal_id)
        assert approval.reason == "Not on a Sunday."
        (signal,) = await harness.timelines.load_signals(harness.principal, claim.turn_id)
        assert (signal.kind, signal.approval_id, signal.text) == (kind, approval_id, "Not on a Sunday.")

    async def test_parking_forgets_earlier_takeovers(self, harness: Harness, approvals: Approvals) -> None:
        claim = await harness.start_turn()
        approval_id = await ask(harness, approvals, claim)
        await harness.expire_lease(claim.lease.conversation_id)
        second = await harness.claim(claim.lease.conversation_id)
        await approvals.try_park(second.lease)

        await answer(harness, claim.lease.conversation_id, approval_id, SignalKind.APPROVE)

        third = await harness.claim(claim.lease.conversation_id)
        assert (second.attempt, third.attempt) == (1, 0)

    async def test_parking_can_be_retried_after_a_lost_reply(self, harness: Harness, approvals: Approvals) -> None:
        claim = await harness.start_turn()
        approval_id = await ask(harness, approvals, claim)
        await approvals.try_park(claim.lease)

        assert await approvals.try_park(claim.lease)

        assert await status_of(harness, claim) is TurnStatus.WAITING
        await answer(harness, claim.lease.conversation_id, approval_id, SignalKind.APPROVE)
        assert not await approvals.try_park(claim.lease)
        assert await status_of(harness, claim) is TurnStatus.QUEUED

    async def test_a_turn_without_a_pending_approval_is_not_parked(
        self, harness: Harness, approvals: Approvals
    ) -> None:
        claim = await harness.start_turn()

        assert not await approvals.try_park(claim.lease)

        assert await status_of(harness, claim) is TurnStatus.RUNNING
        assert await harness.leases.renew({claim.lease.conversation_id: claim.lease.fence})

    async def test_a_lost_lease_parks_nothing(self, harness: Harness, approvals: Approvals) -> None:
        claim = await harness.start_turn()
        await ask(harness, approvals, claim)
        await harness.expire_lease(claim.lease.conversation_id)
        await harness.rival.try_claim(claim.lease.conversation_id)

        assert not await approvals.try_park(claim.lease)

        assert await status_of(harness, claim) is TurnStatus.RUNNING

    @pytest.mark.parametrize("kind", [SignalKind.STEER, SignalKind.CANCEL])
    async def test_a_signal_before_parking_is_processed_first(
        self, harness: Harness, approvals: Approvals, kind: SignalKind
    ) -> None:
        claim = await harness.start_turn()
        await ask(harness, approvals, claim)
        await harness.signal(claim.lease.conversation_id, kind, "Only the north.")

        assert not await approvals.try_park(claim.lease)

    async def test_an_answer_before_parking_is_processed_first(self, harness: Harness, approvals: Approvals) -> None:
        claim = await harness.start_turn()
        approval_id = await ask(harness, approvals, claim)
        await ask(harness, approvals, claim)
        receipt = await answer(harness, claim.lease.conversation_id, approval_id, SignalKind.DENY)

        assert not receipt.ring
        assert not await approvals.try_park(claim.lease)

    @pytest.mark.parametrize("kind", [SignalKind.STEER, SignalKind.CANCEL])
    async def test_a_steer_and_a_cancel_wake_the_turn(
        self, harness: Harness, approvals: Approvals, kind: SignalKind
    ) -> None:
        claim = await harness.start_turn()
        await ask(harness, approvals, claim)
        await approvals.try_park(claim.lease)

        receipt = await harness.signal(claim.lease.conversation_id, kind, "Only the north.")

        assert receipt.ring
        assert (await harness.claim(claim.lease.conversation_id)).turn_id == claim.turn_id

    async def test_a_message_waits_with_the_turn(self, harness: Harness, approvals: Approvals) -> None:
        claim = await harness.start_turn()
        await ask(harness, approvals, claim)
        await approvals.try_park(claim.lease)

        receipt = await harness.say("And the south.", claim.lease.conversation_id)

        assert (receipt.turn_id, receipt.state, receipt.ring) == (claim.turn_id, SignalState.ACCEPTED, False)
        assert await status_of(harness, claim) is TurnStatus.WAITING


class AnswersContract:
    """Which answers count, and for which question."""

    async def test_the_same_answer_again_gets_the_first_receipt(self, harness: Harness, approvals: Approvals) -> None:
        claim = await harness.start_turn()
        approval_id = await ask(harness, approvals, claim)
        await approvals.try_park(claim.lease)
        first = await answer(harness, claim.lease.conversation_id, approval_id, SignalKind.APPROVE)

        again = await answer(harness, claim.lease.conversation_id, approval_id, SignalKind.APPROVE, "Yes, yes.")

        assert (again.signal_id, again.replayed, again.ring) == (first.signal_id, True, False)
        assert claim.turn_id is not None
        assert len(await harness.timelines.load_signals(harness.principal, claim.turn_id)) == 1

    async def test_the_first_answer_counts(self, harness: Harness, approvals: Approvals) -> None:
        claim = await harness.start_turn()
        approval_id = await ask(harness, approvals, claim)
        await answer(harness, claim.lease.conversation_id, approval_id, SignalKind.DENY)

        with pytest.raises(Conflict):
            await answer(harness, claim.lease.conversation_id, approval_id, SignalKind.APPROVE)

        assert await states_of(harness, approvals, claim) == [ApprovalState.DENIED]

    async def test_an_answer_that_comes_too_late_is_refused(self, harness: Harness, approvals: Approvals) -> None:
        claim = await harness.start_turn()
        approval_id = await ask(harness, approvals, claim, timeout_s=OVER_S)

        with pytest.raises(Conflict):
            await answer(harness, claim.lease.conversation_id, approval_id, SignalKind.APPROVE)

    async def test_an_unknown_approval_and_one_of_another_conversation_are_not_found(
        self, harness: Harness, approvals: Approvals
    ) -> None:
        claim, other = await harness.start_turn(), await harness.start_turn()
        approval_id = await ask(harness, approvals, claim)

        for wrong in (approval_id, approval_id_of(harness.ids.call())):
            with pytest.raises(NotFound):
                await answer(harness, other.lease.conversation_id, wrong, SignalKind.APPROVE)

        assert await states_of(harness, approvals, claim) == [ApprovalState.PENDING]

    async def test_strangers_neither_answer_nor_see_an_approval(self, harness: Harness, approvals: Approvals) -> None:
        claim = await harness.start_turn()
        approval_id = await ask(harness, approvals, claim)
        assert claim.turn_id is not None

        for stranger in STRANGERS:
            signal = IncomingSignal(harness.ids.signal(), SignalKind.APPROVE, "", approval_id=approval_id)
            with pytest.raises(NotFound):
                await harness.inbox.accept_signal(stranger, claim.lease.conversation_id, signal, None)
            assert await approvals.load_of_turn(stranger, claim.turn_id) == ()

        assert await states_of(harness, approvals, claim) == [ApprovalState.PENDING]

    async def test_an_answer_can_not_be_edited_or_retracted(self, harness: Harness, approvals: Approvals) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        approval_id = await ask(harness, approvals, claim)
        receipt = await answer(harness, conversation_id, approval_id, SignalKind.APPROVE)
        assert receipt.signal_id is not None

        with pytest.raises(Conflict):
            await harness.inbox.save_signal_text(harness.principal, conversation_id, receipt.signal_id, "No.")
        with pytest.raises(Conflict):
            await harness.inbox.retract_signal(harness.principal, conversation_id, receipt.signal_id)

    async def test_an_answered_approval_can_not_be_withdrawn(self, harness: Harness, approvals: Approvals) -> None:
        claim = await harness.start_turn()
        assert claim.turn_id is not None
        pending, answered = await ask(harness, approvals, claim), await ask(harness, approvals, claim)
        await answer(harness, claim.lease.conversation_id, answered, SignalKind.APPROVE)
        cursor = EventCursor(claim.lease.fence, 1)

        with pytest.raises(InboxMoved):
            await harness.timelines.commit(
                claim.lease, Commit(claim.turn_id, (), cursor, withdrawn=(pending, answered))
            )
        await harness.timelines.commit(claim.lease, Commit(claim.turn_id, (), cursor, withdrawn=(pending,)))

        assert await states_of(harness, approvals, claim) == [ApprovalState.WITHDRAWN, ApprovalState.APPROVED]

    async def test_the_end_of_the_turn_withdraws_what_is_pending(self, harness: Harness, approvals: Approvals) -> None:
        claim = await harness.start_turn()
        approval_id = await ask(harness, approvals, claim)

        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))

        assert await states_of(harness, approvals, claim) == [ApprovalState.WITHDRAWN]
        with pytest.raises(Conflict):
            await answer(harness, claim.lease.conversation_id, approval_id, SignalKind.APPROVE)
