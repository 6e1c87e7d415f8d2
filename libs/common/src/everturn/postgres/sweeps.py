"""What the sweeper asks of Postgres across tenants: which doorbells to ring. The functions return ids only."""

from collections.abc import Sequence

from everturn.model.identity import Lane
from everturn.model.ids import ConversationId
from everturn.ports.inbox import TENANT_SHARE
from everturn.ports.sweeps import Ring
from everturn.postgres.database import Database, Row


class PostgresSweeps:
    """Rings for lost doorbells and for the next turns of a tenant that is within `share` turns on a lane."""

    def __init__(self, database: Database, *, share: int = TENANT_SHARE) -> None:
        self._database = database
        self._share = share

    async def due_doorbells(self, *, takeovers: bool) -> tuple[Ring, ...]:
        async with self._database.connection() as connection:
            # Two statements, so that what the first one wakes is committed, and seen by the second.
            await connection.fetchval("SELECT expire_approvals()")
            return _read_rings(await connection.fetch("SELECT * FROM due_doorbells($1, $2)", self._share, takeovers))

    async def next_of_tenant(self, conversation_id: ConversationId) -> tuple[Ring, ...]:
        async with self._database.connection() as connection:
            return _read_rings(
                await connection.fetch("SELECT * FROM next_of_tenant($1, $2)", conversation_id, self._share)
            )


def _read_rings(rows: Sequence[Row]) -> tuple[Ring, ...]:
    return tuple(Ring(row["conversation_id"], Lane(row["lane"])) for row in rows)
