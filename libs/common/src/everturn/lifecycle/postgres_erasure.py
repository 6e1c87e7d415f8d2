"""Rows that name objects, rows that remain after an erasure, and expired rows, queried across tenants."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from everturn.core.errors import Invalid
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.lifecycle.erasure import Expired
from everturn.lifecycle.orphans import MAX_KEYS
from everturn.postgres.pool import Database

ERASE_TIMEOUT_S = 300.0
"""For one conversation. No caller waits for it; requests to that conversation meanwhile get Unavailable."""
_DUE = "SELECT due_conversations($1, $2, $3) AS id"
_EXPIRE = "SELECT * FROM expire_conversation($1, $2)"
_TAKE_TIME = "SELECT set_config('statement_timeout', $1, true)"


class PostgresObjectRows:
    """Finds objects that no row names; see LoadOrphans."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_orphans(self, keys: Sequence[str]) -> tuple[str, ...]:
        if len(keys) > MAX_KEYS:
            raise Invalid(f"At most {MAX_KEYS} keys are looked up at once.")
        async with self._database.connection() as connection:
            rows = await connection.fetch("SELECT key FROM find_orphan_objects($1)", list(keys))
        return tuple(row["key"] for row in rows)


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


class PostgresRetention:
    """Implements Retention. Definer functions choose and erase due conversations, and return the owner of each."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_due(
        self, *, days: int, limit: int, skip: Collection[ConversationId] = ()
    ) -> tuple[ConversationId, ...]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_DUE, timedelta(days=days), list(skip), limit)
        return tuple(ConversationId(row["id"]) for row in rows)

    async def try_erase(self, conversation_id: ConversationId, *, days: int) -> Expired | None:
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_TAKE_TIME, f"{ERASE_TIMEOUT_S:.0f}s")
            row = await connection.fetchrow(_EXPIRE, conversation_id, timedelta(days=days), timeout=ERASE_TIMEOUT_S)
        if row is None:
            return None
        return Expired(
            conversation_id=conversation_id,
            owner=Principal(row["tenant"], row["project"], row["user_id"]),
            object_keys=tuple(row["object_keys"]),
            rows=row["removed"],
        )

    async def remove_expired_rows(self, *, days: int, limit: int) -> Mapping[str, int]:
        age = timedelta(days=days) if days else None
        async with self._database.connection() as connection:
            rows = await connection.fetch("SELECT * FROM remove_expired_rows($1, $2)", age, limit)
        return {row["store"]: row["removed"] for row in rows}
