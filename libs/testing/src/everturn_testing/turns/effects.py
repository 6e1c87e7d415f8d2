"""The effect ledger in memory: the same keys and the same fence as in the database."""

from everturn.core.errors import StaleFence
from everturn.turns.model import Effect, EffectState, Lease
from everturn.turns.ports import EffectKey, EffectRecord
from everturn_testing.in_memory_platform import MemoryPlatform


class MemoryEffects:
    """Implements EffectLedger for all conversations of a platform."""

    def __init__(self, platform: MemoryPlatform) -> None:
        self._platform = platform
        self.rows: dict[tuple[str, str], EffectRecord] = {}

    async def begin(self, lease: Lease, key: EffectKey, effect: Effect) -> EffectRecord | None:
        self._check(lease)
        where = (key.turn_id, key.row_id)
        if (known := self.rows.get(where)) is not None:
            return known
        self.rows[where] = EffectRecord(EffectState.INTENDED, "")
        return None

    async def settle(self, lease: Lease, key: EffectKey, state: EffectState, reply: str) -> None:
        self._check(lease)
        if (key.turn_id, key.row_id) in self.rows:
            self.rows[(key.turn_id, key.row_id)] = EffectRecord(state, reply)

    def _check(self, lease: Lease) -> None:
        row = self._platform.conversations.get(lease.conversation_id)
        if row is None or row.fence != lease.fence:
            raise StaleFence(lease.conversation_id)
