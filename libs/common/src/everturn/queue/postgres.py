"""The queue in Postgres: waiting turns, with or without a doorbell."""

from collections.abc import Mapping, Sequence

from everturn.core.identity import Lane
from everturn.core.ids import ConversationId
from everturn.postgres.pool import Database
from everturn.queue.model import MAX_AHEAD, LaneDepth, Owned, QueueDepth, WaitingTurn, build_position

_POSITIONS = "SELECT * FROM queue_positions($1, $2, $3, $4, $5)"


class PostgresQueue:
    """Counts over indexes that contain queued turns only; the functions return numbers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_depth(self, tenant: str, lane: Lane) -> QueueDepth:
        async with self._database.connection() as connection:
            (row,) = await connection.fetch("SELECT * FROM queue_depth($1, $2)", tenant, lane.value)
        return QueueDepth(row["waiting"], row["of_tenant"])

    async def load_lanes(self) -> Mapping[Lane, LaneDepth]:
        async with self._database.connection() as connection:
            rows = await connection.fetch("SELECT * FROM queue_lanes()")
        return {Lane(row["lane"]): LaneDepth(row["waiting"], row["oldest_s"]) for row in rows}

    async def load_positions(self, conversations: Sequence[Owned]) -> Mapping[ConversationId, WaitingTurn]:
        owners = [principal.owner for principal, _ in conversations]
        tenants, projects, users = map(list, zip(*owners, strict=True)) if owners else ([], [], [])
        ids = [conversation_id for _, conversation_id in conversations]
        async with self._database.connection() as connection:
            rows = await connection.fetch(_POSITIONS, ids, tenants, projects, users, MAX_AHEAD + 1)
        return {row["conversation_id"]: WaitingTurn(row["turn_id"], build_position(row["ahead"])) for row in rows}
