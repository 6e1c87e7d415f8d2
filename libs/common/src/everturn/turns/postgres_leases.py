"""Leases in Postgres, and the sweeps that find turns without one.

Both use functions that see all tenants but return no content; database time decides.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from everturn.core.errors import StaleFence
from everturn.core.identity import Lane, Principal, Role, read_roles
from everturn.core.ids import ConversationId, TurnId
from everturn.events.cursor import EventCursor
from everturn.postgres.pool import Database, Row
from everturn.turns.inbox import TENANT_SHARE
from everturn.turns.model import Claim, ClaimBounds, Deferred, Lease, SlotKind
from everturn.turns.ports import Ring
from everturn.turns.postgres_rows import read_cursor

# An ended turn does not use `attempt`, because its last commit has set it to 0.
_ANNOUNCE_COUNT = """
SELECT t.attempt FROM turn t JOIN conversation c ON c.id = t.conversation_id
 WHERE t.id = $1 AND c.id = $2 AND c.fence = $3 AND t.status IN ('completed', 'failed', 'cancelled')
"""
_SAVE_ANNOUNCE_COUNT = """
UPDATE turn SET attempt = $4
  FROM conversation c
 WHERE turn.id = $1 AND c.id = turn.conversation_id AND c.id = $2 AND c.fence = $3
   AND turn.status IN ('completed', 'failed', 'cancelled')
"""


class PostgresLeases:
    """The leases of one worker, `owner`; each lasts `ttl_s` unless renewed."""

    def __init__(self, database: Database, *, owner: str, ttl_s: float = 15.0) -> None:
        self._database = database
        self._owner = owner
        self._ttl = timedelta(seconds=ttl_s)

    async def try_claim(self, conversation_id: ConversationId) -> Claim | None:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(
                "SELECT * FROM claim_conversation($1, $2, $3)", conversation_id, self._owner, self._ttl
            )
        return None if row is None else self._read_claim(conversation_id, row)

    async def try_claim_fairly(
        self, conversation_id: ConversationId, bounds: ClaimBounds, slot: SlotKind
    ) -> Claim | Deferred | None:
        extra, lent = slot is not SlotKind.ORDINARY, slot is SlotKind.LENT
        async with self._database.connection() as connection:
            row = await connection.fetchrow(
                "SELECT * FROM claim_fairly($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                conversation_id,
                self._owner,
                self._ttl,
                bounds.user_max,
                bounds.tenant_max,
                bounds.slots,
                bounds.extra,
                extra,
                lent,
            )
        if row is None:
            return None
        if (better := row["deferred_to"]) is not None:
            return Deferred(better, Lane(row["deferred_lane"]))
        return self._read_claim(conversation_id, row)

    async def find_extra_turn(self, bounds: ClaimBounds, slot: SlotKind) -> ConversationId | None:
        async with self._database.connection() as connection:
            return await connection.fetchval(
                "SELECT find_extra_turn(NULL, $1, $2, $3, $4, $5)",
                bounds.user_max,
                bounds.tenant_max,
                bounds.slots,
                bounds.extra,
                slot is SlotKind.LENT,
            )

    async def renew(self, held: Mapping[ConversationId, int]) -> Mapping[ConversationId, int | None]:
        if not held:
            return {}
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                "SELECT * FROM renew_leases($1, $2, $3, $4)", self._owner, list(held), list(held.values()), self._ttl
            )
        # -1 for a row that was not renewed: a worker of the previous version reads that as "nothing new in the inbox".
        return {row["conversation_id"]: row["inbox_seq"] if row["inbox_seq"] >= 0 else None for row in rows}

    async def release(self, lease: Lease, *, requeue: bool) -> bool:
        async with self._database.connection() as connection:
            return await connection.fetchval(
                "SELECT release_lease($1, $2, $3, $4)", lease.conversation_id, lease.owner, lease.fence, requeue
            )

    async def load_announce_attempts(self, lease: Lease, turn_id: TurnId) -> int:
        async with self._database.transaction(lease.principal, readonly=True) as transaction:
            attempts = await transaction.fetchval(_ANNOUNCE_COUNT, turn_id, lease.conversation_id, lease.fence)
        if attempts is None:
            raise StaleFence(lease.conversation_id)
        return int(attempts)

    async def save_announce_attempts(self, lease: Lease, turn_id: TurnId, attempts: int) -> None:
        async with self._database.transaction(lease.principal) as transaction:
            done = await transaction.execute(
                _SAVE_ANNOUNCE_COUNT, turn_id, lease.conversation_id, lease.fence, attempts
            )
        if done != "UPDATE 1":
            raise StaleFence(lease.conversation_id)

    async def mark_announced(self, lease: Lease, turn_id: TurnId, cursor: EventCursor) -> None:
        async with self._database.connection() as connection:
            is_saved = await connection.fetchval(
                "SELECT save_announced($1, $2, $3, $4, $5, $6, $7)",
                *lease.principal.owner,
                lease.conversation_id,
                turn_id,
                lease.fence,
                str(cursor),
            )
        if not is_saved:
            raise StaleFence(lease.conversation_id)

    async def release_announced(self, lease: Lease, turn_id: TurnId, cursor: EventCursor) -> bool:
        async with self._database.connection() as connection:
            has_work = await connection.fetchval(
                "SELECT release_announced($1, $2, $3, $4, $5, $6, $7, $8)",
                *lease.principal.owner,
                lease.conversation_id,
                turn_id,
                lease.owner,
                lease.fence,
                str(cursor),
            )
        if has_work is None:
            raise StaleFence(lease.conversation_id)
        return has_work

    def _read_claim(self, conversation_id: ConversationId, row: Row) -> Claim:
        roles = read_roles(row["roles"] or ()) or frozenset({Role.REGISTERED})
        return Claim(
            lease=Lease(
                conversation_id=conversation_id,
                principal=Principal(row["tenant"], row["project"], row["user_id"], roles),
                owner=self._owner,
                fence=row["fence"],
            ),
            turn_id=row["turn_id"],
            attempt=row["attempt"],
            next_seq=row["next_seq"],
            last_hash=row["last_hash"],
            cursor=read_cursor(row["event_cursor"]),
            inbox_seq=row["inbox_seq"],
            unannounced=tuple(row["unannounced"]),
        )


class PostgresSweeps:
    """Implements Sweeps; a tenant can have `share` queued turns with a doorbell on each lane."""

    def __init__(self, database: Database, *, share: int = TENANT_SHARE) -> None:
        self._database = database
        self._share = share

    async def claim_due_doorbells(self, *, takeovers: bool) -> tuple[Ring, ...]:
        async with self._database.connection() as connection:
            # Two statements, so that the wake-ups of the first are committed and visible to the second.
            await connection.fetchval("SELECT expire_approvals()")
            return _read_rings(await connection.fetch("SELECT * FROM due_doorbells($1, $2)", self._share, takeovers))

    async def claim_next_doorbells(self, conversation_id: ConversationId) -> tuple[Ring, ...]:
        async with self._database.connection() as connection:
            return _read_rings(
                await connection.fetch("SELECT * FROM next_of_tenant($1, $2)", conversation_id, self._share)
            )


def _read_rings(rows: Sequence[Row]) -> tuple[Ring, ...]:
    return tuple(Ring(row["conversation_id"], Lane(row["lane"])) for row in rows)
