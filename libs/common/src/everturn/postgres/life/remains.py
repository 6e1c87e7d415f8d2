"""Counting what is left of a conversation in Postgres, in every table that names conversations."""

from collections.abc import Mapping

from everturn.model.ids import ConversationId
from everturn.postgres.database import Database


class PostgresRemainingRows:
    """Implements RemainingRows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def count_rows(self, conversation_id: ConversationId) -> Mapping[str, int]:
        async with self._database.connection() as connection:
            rows = await connection.fetch("SELECT * FROM count_remains($1)", conversation_id)
        return {row["store"]: row["remaining"] for row in rows}

    async def load_named_objects(self, conversation_id: ConversationId) -> frozenset[str]:
        async with self._database.connection() as connection:
            rows = await connection.fetch("SELECT named_objects($1) AS key", conversation_id)
        return frozenset(row["key"] for row in rows)
