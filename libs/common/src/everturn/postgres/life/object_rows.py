"""Asks Postgres, across tenants, which stored objects no row names. It answers with keys it was given, and no more."""

from collections.abc import Sequence

from everturn.errors import Invalid
from everturn.ports.life.object_rows import MAX_KEYS
from everturn.postgres.database import Database


class PostgresObjectRows:
    """Implements ObjectRows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_orphans(self, keys: Sequence[str]) -> tuple[str, ...]:
        if len(keys) > MAX_KEYS:
            raise Invalid(f"At most {MAX_KEYS} keys are looked up at once.")
        async with self._database.connection() as connection:
            rows = await connection.fetch("SELECT key FROM find_orphan_objects($1)", list(keys))
        return tuple(row["key"] for row in rows)
