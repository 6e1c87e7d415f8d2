"""The contract of EffectLedger: a call begins once for its key, for any lease holder, and its end is stored."""

from dataclasses import replace

import pytest

from everturn.core.errors import StaleFence
from everturn.core.ids import CallId
from everturn.turns.model import Claim, Effect, EffectState
from everturn.turns.ports import MAX_EFFECT_REPLY_CHARS, EffectKey, EffectLedger, EffectRecord
from everturn_testing.turns.harness import Harness

IRREVERSIBLE = Effect.IRREVERSIBLE


class EffectsContract:
    """Subclasses define `harness` and `ledger`, over the same rows."""

    async def test_a_call_is_begun_once(self, harness: Harness, ledger: EffectLedger) -> None:
        claim = await harness.start_turn()
        key = build_key(claim)

        assert await ledger.begin(claim.lease, key, IRREVERSIBLE) is None
        assert await ledger.begin(claim.lease, key, IRREVERSIBLE) == EffectRecord(EffectState.INTENDED, "")

    @pytest.mark.parametrize("field", ["run_call_id", "tool_id", "args_hash", "occurrence"])
    async def test_another_key_is_another_call(self, harness: Harness, ledger: EffectLedger, field: str) -> None:
        claim = await harness.start_turn()
        key = build_key(claim)
        other = replace(key, **{field: 2 if field == "occurrence" else "other"})
        await ledger.begin(claim.lease, key, IRREVERSIBLE)

        assert await ledger.begin(claim.lease, other, IRREVERSIBLE) is None

    async def test_the_end_of_a_call_is_kept_for_the_next_worker(self, harness: Harness, ledger: EffectLedger) -> None:
        claim = await harness.start_turn()
        key, reply = build_key(claim), "r" * MAX_EFFECT_REPLY_CHARS
        await ledger.begin(claim.lease, key, Effect.IDEMPOTENT)
        await ledger.settle(claim.lease, key, EffectState.COMMITTED, reply)
        await harness.expire_lease(claim.lease.conversation_id)
        taken_over = await harness.claim(claim.lease.conversation_id)

        known = await ledger.begin(taken_over.lease, key, Effect.IDEMPOTENT)

        assert known == EffectRecord(EffectState.COMMITTED, reply)

    async def test_a_worker_that_lost_its_lease_begins_and_settles_nothing(
        self, harness: Harness, ledger: EffectLedger
    ) -> None:
        claim = await harness.start_turn()
        begun, fresh = build_key(claim), replace(build_key(claim), occurrence=2)
        await ledger.begin(claim.lease, begun, IRREVERSIBLE)
        await harness.expire_lease(claim.lease.conversation_id)
        taken_over = await harness.claim(claim.lease.conversation_id)

        with pytest.raises(StaleFence):
            await ledger.begin(claim.lease, fresh, IRREVERSIBLE)
        with pytest.raises(StaleFence):
            await ledger.settle(claim.lease, begun, EffectState.COMMITTED, "{}")

        assert await ledger.begin(taken_over.lease, begun, IRREVERSIBLE) == EffectRecord(EffectState.INTENDED, "")
        assert await ledger.begin(taken_over.lease, fresh, IRREVERSIBLE) is None


def build_key(claim: Claim) -> EffectKey:
    """The first call of a run."""
    assert claim.turn_id is not None
    return EffectKey(claim.turn_id, CallId("call_1"), "mail.send", "a" * 64, 1)
