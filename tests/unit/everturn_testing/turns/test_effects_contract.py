"""An effect ledger that lets a call begin twice breaks the contract."""

import pytest

from everturn.turns.model import Effect, Lease
from everturn.turns.ports import EffectKey
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.effects import MemoryEffects
from everturn_testing.turns.effects_contract import EffectsContract
from everturn_testing.turns.harness import Harness


class Forgetful(MemoryEffects):
    async def begin(self, lease: Lease, key: EffectKey, effect: Effect) -> None:
        await super().begin(lease, key, effect)


async def test_a_ledger_that_forgets_what_was_begun_is_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    with pytest.raises(AssertionError):
        await EffectsContract().test_a_call_is_begun_once(harness, Forgetful(platform))
