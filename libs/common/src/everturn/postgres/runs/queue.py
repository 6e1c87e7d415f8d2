"""The queue as Postgres has it: turns that wait, with or without a doorbell."""

from everturn.model.identity import Lane
from everturn.ports.limits.queue import QueueDepth
from everturn.postgres.database import Database


class PostgresQueue:
    """Counts over an index that holds queued turns only; the function returns numbers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_depth(self, tenant: str, lane: Lane) -> QueueDepth:
        async with self._database.connection() as connection:
            (row,) = await connection.fetch("SELECT * FROM queue_depth($1, $2)", tenant, lane.value)
        return QueueDepth(row["waiting"], row["of_tenant"], row["tenants"])
