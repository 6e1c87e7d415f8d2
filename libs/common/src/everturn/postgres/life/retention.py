"""Retention in Postgres: definer functions choose what is due and erase it, and name the owner of each."""

from collections.abc import Mapping
from datetime import timedelta

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.ports.life.retention import Expired
from everturn.postgres.database import Database


class PostgresRetention:
    """Implements Retention."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def erase_expired(self, *, days: int, limit: int) -> tuple[Expired, ...]:
        async with self._database.connection() as connection:
            rows = await connection.fetch("SELECT * FROM erase_expired($1, $2)", timedelta(days=days), limit)
        return tuple(
            Expired(
                conversation_id=ConversationId(row["conversation_id"]),
                owner=Principal(row["tenant"], row["project"], row["user_id"]),
                object_keys=tuple(row["object_keys"]),
                rows=row["removed"],
            )
            for row in rows
        )

    async def remove_expired_rows(self, *, days: int, limit: int) -> Mapping[str, int]:
        age = timedelta(days=days) if days else None
        async with self._database.connection() as connection:
            rows = await connection.fetch("SELECT * FROM remove_expired_rows($1, $2)", age, limit)
        return {row["store"]: row["removed"] for row in rows}
