"""The contract of Inbox and Timelines about receipts: the states of a signal, and until when it can be changed."""

from dataclasses import replace

import pytest

from everturn.core.errors import Conflict
from everturn.timeline.blocks import SignalBody
from everturn.timeline.turns import Signal, SignalKind, SignalState
from everturn.turns.inbox import IdempotencyKey, IncomingSignal, KeyReused, Receipt
from everturn.turns.model import Claim, Promotion, SignalChange
from everturn.turns.ports import InboxMoved
from everturn_testing.turns.harness import Harness, closing, commit, turn_of, write


class ReceiptsContract:
    """ACCEPTED can become any other state, once, and only an accepted signal can be changed."""

    async def test_a_new_signal_is_accepted(self, harness: Harness) -> None:
        _, receipt = await _with_followup(harness)

        assert (await _load(harness, receipt)).state is SignalState.ACCEPTED

    async def test_a_receipt_can_be_loaded_by_its_key(self, harness: Harness) -> None:
        key = IdempotencyKey("messages", harness.ids.call(), "hash")
        assert await harness.inbox.try_load_receipt(harness.principal, key) is None
        first = await harness.say(key=key)

        kept = await harness.inbox.try_load_receipt(harness.principal, key)

        assert kept == await harness.say(key=key)
        assert kept is not None and kept.turn_id == first.turn_id
        assert await harness.inbox.try_load_receipt(replace(harness.principal, user_id="somebody"), key) is None
        with pytest.raises(KeyReused):
            await harness.inbox.try_load_receipt(harness.principal, replace(key, request_hash="another"))

    async def test_an_applied_signal_names_its_round(self, harness: Harness) -> None:
        claim, receipt = await _with_followup(harness)

        await _settle(harness, claim, receipt, SignalState.APPLIED)

        signal = await _load(harness, receipt)
        assert (signal.state, signal.round) == (SignalState.APPLIED, 1)

    @pytest.mark.parametrize("state", [SignalState.EXPIRED, SignalState.REJECTED])
    async def test_a_signal_expires_or_is_rejected_without_a_block(self, harness: Harness, state: SignalState) -> None:
        claim, receipt = await _with_followup(harness)

        await _settle(harness, claim, receipt, state)

        (signal,) = await harness.timelines.load_signals(harness.principal, turn_of(receipt))
        assert signal.state is state

    async def test_a_promoted_signal_names_the_turn_it_became(self, harness: Harness) -> None:
        claim, receipt = await _with_followup(harness)
        assert receipt.signal_id is not None
        promotion = Promotion((receipt.signal_id,), harness.ids.turn(), "More.")

        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq + 1, promote=promotion))

        signal = await _load(harness, receipt)
        assert (signal.state, signal.promoted_to) == (SignalState.PROMOTED, promotion.turn_id)

    @pytest.mark.parametrize("state", [SignalState.APPLIED, SignalState.EXPIRED, SignalState.REJECTED])
    async def test_a_settled_signal_can_not_be_changed(self, harness: Harness, state: SignalState) -> None:
        claim, receipt = await _with_followup(harness)
        assert receipt.signal_id is not None
        await _settle(harness, claim, receipt, state)

        with pytest.raises(Conflict):
            await harness.inbox.save_signal_text(harness.principal, receipt.conversation_id, receipt.signal_id, "Less.")
        with pytest.raises(Conflict):
            await harness.inbox.retract_signal(harness.principal, receipt.conversation_id, receipt.signal_id)

        assert (await _load(harness, receipt)).text == "More."

    async def test_a_signal_is_settled_once(self, harness: Harness) -> None:
        claim, receipt = await _with_followup(harness)
        assert receipt.signal_id is not None
        blocks = write(claim, SignalBody(signal_id=receipt.signal_id, text="More."))
        change = SignalChange(receipt.signal_id, SignalState.APPLIED, round=1)
        await harness.timelines.commit(claim.lease, commit(claim, blocks, change))

        again = write(claim, SignalBody(signal_id=receipt.signal_id, text="More."), after=blocks)
        with pytest.raises(InboxMoved):
            await harness.timelines.commit(claim.lease, commit(claim, again, change))

    async def test_a_signal_with_the_key_of_another_gets_its_answer(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        key = IdempotencyKey("signals", harness.ids.call(), "hash")
        where = harness.principal, claim.lease.conversation_id

        first = await harness.inbox.accept_signal(*where, _steer(harness), key)
        again = await harness.inbox.accept_signal(*where, _steer(harness), key)
        with pytest.raises(KeyReused):
            other = IdempotencyKey(key.route, key.key, "other")
            await harness.inbox.accept_signal(*where, _steer(harness), other)

        assert (again.signal_id, again.replayed) == (first.signal_id, True)
        assert len(await harness.timelines.load_signals(harness.principal, turn_of(first))) == 1


def _steer(harness: Harness) -> IncomingSignal:
    return IncomingSignal(harness.ids.signal(), SignalKind.STEER, "left")


async def _with_followup(harness: Harness) -> tuple[Claim, Receipt]:
    claim = await harness.start_turn()
    return claim, await harness.say("More.", claim.lease.conversation_id)


async def _settle(harness: Harness, claim: Claim, receipt: Receipt, state: SignalState) -> None:
    assert receipt.signal_id is not None
    applied = state is SignalState.APPLIED
    blocks = write(claim, SignalBody(signal_id=receipt.signal_id, text="More.")) if applied else ()
    change = SignalChange(receipt.signal_id, state, round=1 if applied else None)
    await harness.timelines.commit(claim.lease, commit(claim, blocks, change))


async def _load(harness: Harness, receipt: Receipt) -> Signal:
    assert receipt.signal_id is not None
    return await harness.inbox.load_signal(harness.principal, receipt.conversation_id, receipt.signal_id)
