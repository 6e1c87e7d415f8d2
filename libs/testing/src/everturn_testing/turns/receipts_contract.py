"""The contract of Inbox and Timelines about receipts: the states of a signal, and until when it can be changed."""

from dataclasses import replace

import pytest

from everturn.core.errors import Conflict
from everturn.timeline.bodies import SignalBody
from everturn.timeline.turns import Signal, SignalKind, SignalState
from everturn.turns.commits import Promotion, SignalChange
from everturn.turns.inbox import IdempotencyKey, IncomingSignal, KeyReused, Receipt
from everturn.turns.leases import Claim
from everturn.turns.ports import InboxMoved
from everturn_testing.turns.stage import Stage, closing, commit, turn_of, write


class ReceiptsContract:
    """ACCEPTED can become any other state, once, and only an accepted signal can be changed."""

    async def test_a_new_signal_is_accepted(self, stage: Stage) -> None:
        _, receipt = await _with_followup(stage)

        assert (await _load(stage, receipt)).state is SignalState.ACCEPTED

    async def test_a_receipt_can_be_loaded_by_its_key(self, stage: Stage) -> None:
        key = IdempotencyKey("messages", stage.ids.call(), "hash")
        assert await stage.inbox.try_load_receipt(stage.principal, key) is None
        first = await stage.say(key=key)

        kept = await stage.inbox.try_load_receipt(stage.principal, key)

        assert kept == await stage.say(key=key)
        assert kept is not None and kept.turn_id == first.turn_id
        assert await stage.inbox.try_load_receipt(replace(stage.principal, user_id="somebody"), key) is None
        with pytest.raises(KeyReused):
            await stage.inbox.try_load_receipt(stage.principal, replace(key, request_hash="another"))

    async def test_an_applied_signal_names_its_round(self, stage: Stage) -> None:
        claim, receipt = await _with_followup(stage)

        await _settle(stage, claim, receipt, SignalState.APPLIED)

        signal = await _load(stage, receipt)
        assert (signal.state, signal.round) == (SignalState.APPLIED, 1)

    @pytest.mark.parametrize("state", [SignalState.EXPIRED, SignalState.REJECTED])
    async def test_a_signal_expires_or_is_rejected_without_a_block(self, stage: Stage, state: SignalState) -> None:
        claim, receipt = await _with_followup(stage)

        await _settle(stage, claim, receipt, state)

        (signal,) = await stage.timelines.load_signals(stage.principal, turn_of(receipt))
        assert signal.state is state

    async def test_a_promoted_signal_names_the_turn_it_became(self, stage: Stage) -> None:
        claim, receipt = await _with_followup(stage)
        assert receipt.signal_id is not None
        promotion = Promotion((receipt.signal_id,), stage.ids.turn(), "More.")

        await stage.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq + 1, promote=promotion))

        signal = await _load(stage, receipt)
        assert (signal.state, signal.promoted_to) == (SignalState.PROMOTED, promotion.turn_id)

    @pytest.mark.parametrize("state", [SignalState.APPLIED, SignalState.EXPIRED, SignalState.REJECTED])
    async def test_a_settled_signal_can_not_be_changed(self, stage: Stage, state: SignalState) -> None:
        claim, receipt = await _with_followup(stage)
        assert receipt.signal_id is not None
        await _settle(stage, claim, receipt, state)

        with pytest.raises(Conflict):
            await stage.inbox.save_signal_text(stage.principal, receipt.conversation_id, receipt.signal_id, "Less.")
        with pytest.raises(Conflict):
            await stage.inbox.retract_signal(stage.principal, receipt.conversation_id, receipt.signal_id)

        assert (await _load(stage, receipt)).text == "More."

    async def test_a_signal_is_settled_once(self, stage: Stage) -> None:
        claim, receipt = await _with_followup(stage)
        assert receipt.signal_id is not None
        blocks = write(claim, SignalBody(signal_id=receipt.signal_id, text="More."))
        change = SignalChange(receipt.signal_id, SignalState.APPLIED, round=1)
        await stage.timelines.commit(claim.lease, commit(claim, blocks, change))

        again = write(claim, SignalBody(signal_id=receipt.signal_id, text="More."), after=blocks)
        with pytest.raises(InboxMoved):
            await stage.timelines.commit(claim.lease, commit(claim, again, change))

    async def test_a_signal_with_the_key_of_another_gets_its_answer(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        key = IdempotencyKey("signals", stage.ids.call(), "hash")
        where = stage.principal, claim.lease.conversation_id

        first = await stage.inbox.accept_signal(*where, _steer(stage), key)
        again = await stage.inbox.accept_signal(*where, _steer(stage), key)
        with pytest.raises(KeyReused):
            other = IdempotencyKey(key.route, key.key, "other")
            await stage.inbox.accept_signal(*where, _steer(stage), other)

        assert (again.signal_id, again.replayed) == (first.signal_id, True)
        assert len(await stage.timelines.load_signals(stage.principal, turn_of(first))) == 1


def _steer(stage: Stage) -> IncomingSignal:
    return IncomingSignal(stage.ids.signal(), SignalKind.STEER, "left")


async def _with_followup(stage: Stage) -> tuple[Claim, Receipt]:
    claim = await stage.start_turn()
    return claim, await stage.say("More.", claim.lease.conversation_id)


async def _settle(stage: Stage, claim: Claim, receipt: Receipt, state: SignalState) -> None:
    assert receipt.signal_id is not None
    applied = state is SignalState.APPLIED
    blocks = write(claim, SignalBody(signal_id=receipt.signal_id, text="More.")) if applied else ()
    change = SignalChange(receipt.signal_id, state, round=1 if applied else None)
    await stage.timelines.commit(claim.lease, commit(claim, blocks, change))


async def _load(stage: Stage, receipt: Receipt) -> Signal:
    assert receipt.signal_id is not None
    return await stage.inbox.load_signal(stage.principal, receipt.conversation_id, receipt.signal_id)
