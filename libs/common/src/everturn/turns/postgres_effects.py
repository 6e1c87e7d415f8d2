"""The effect ledger in Postgres: which calls of tools were begun, and how they ended.

A call of a program has its own transactions, which hold the fence until their end. The agent's own calls are written
by the commits of the lease holder (append_commit).
"""

from everturn.core.errors import StaleFence
from everturn.postgres.pool import Connection, Database
from everturn.turns.model import Effect, EffectState, Lease
from everturn.turns.ports import EffectKey, EffectRecord

# A claim changes the fence in the same row, so it waits for this lock, and what we read stays true until we commit.
_FENCE = "SELECT 1 FROM conversation WHERE id = $1 AND fence = $2 FOR SHARE"
_BEGIN = """
INSERT INTO tool_effect (turn_id, conversation_id, tenant, project, user_id, call_id, tool_id, args_hash, occurrence,
                         effect, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'intended')
ON CONFLICT (turn_id, call_id) DO NOTHING
"""
_KNOWN = "SELECT state, reply FROM tool_effect WHERE turn_id = $1 AND call_id = $2"
_SETTLE = "UPDATE tool_effect SET state = $3, reply = $4 WHERE turn_id = $1 AND call_id = $2"


class PostgresEffects:
    """Implements EffectLedger under the principal of the lease."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, lease: Lease, key: EffectKey, effect: Effect) -> EffectRecord | None:
        who = lease.principal
        owner = key.turn_id, lease.conversation_id, who.tenant, who.project, who.user_id
        async with self._database.transaction(who) as transaction:
            await check_fence(transaction, lease)
            asked = key.row_id, key.tool_id, key.args_hash, key.occurrence, effect.value
            if await transaction.execute(_BEGIN, *owner, *asked) == "INSERT 0 1":
                return None
            known = await transaction.fetchrow(_KNOWN, key.turn_id, key.row_id) or {}
            return EffectRecord(EffectState(known["state"]), known["reply"])

    async def settle(self, lease: Lease, key: EffectKey, state: EffectState, reply: str) -> None:
        async with self._database.transaction(lease.principal) as transaction:
            await check_fence(transaction, lease)
            await transaction.execute(_SETTLE, key.turn_id, key.row_id, state.value, reply)


async def check_fence(transaction: Connection, lease: Lease) -> None:
    """Keep the fence until the transaction ends. Raises StaleFence."""
    if await transaction.fetchval(_FENCE, lease.conversation_id, lease.fence) is None:
        raise StaleFence(lease.conversation_id)
