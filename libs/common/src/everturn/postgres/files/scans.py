"""Verdicts of stored files in Postgres, across tenants."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from everturn.errors import NotFound
from everturn.model.ids import ArtifactId
from everturn.ports.files.scans import MAX_TARGETS, REVOKED, ScanTarget
from everturn.postgres.database import Connection, Database, Row

_OUTDATED = """
SELECT id, object_key, size, verdict, revoked_at IS NOT NULL AS revoked FROM artifact
 WHERE NOT removed AND NOT (revoked_at IS NOT NULL AND verdict LIKE $1 || '%') AND id > $2
   AND ($3::text IS NULL OR verdict <> $3 OR revoked_at IS NOT NULL) ORDER BY id LIMIT $4
"""
_ONE = """
SELECT id, object_key, size, verdict, revoked_at IS NOT NULL AS revoked FROM artifact
 WHERE NOT removed AND NOT (revoked_at IS NOT NULL AND verdict LIKE $1 || '%') AND id = $2
"""
_SAVE_VERDICT = "UPDATE artifact SET verdict = $2 WHERE object_key = $1"
_REVOKE = """
WITH taken AS (UPDATE artifact SET revoked_at = COALESCE(revoked_at, now()) WHERE object_key = $1 RETURNING 1)
SELECT count(*) FROM taken
"""


class PostgresScans:
    """Implements Scans. Needs the migrating role, which becomes everturn_dispatch for each transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Connection]:
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute("SET LOCAL ROLE everturn_dispatch")
            yield connection

    async def load_outdated(self, verdict: str | None, *, after: str = "", limit: int = 100) -> tuple[ScanTarget, ...]:
        async with self._transaction() as transaction:
            rows = await transaction.fetch(_OUTDATED, REVOKED, after, verdict, min(limit, MAX_TARGETS))
        return tuple(map(_read_target, rows))

    async def load(self, artifact_id: ArtifactId) -> ScanTarget:
        async with self._transaction() as transaction:
            row = await transaction.fetchrow(_ONE, REVOKED, artifact_id)
        if row is None:
            raise NotFound(artifact_id)
        return _read_target(row)

    async def save_verdict(self, object_key: str, verdict: str) -> None:
        async with self._transaction() as transaction:
            await transaction.execute(_SAVE_VERDICT, object_key, verdict)

    async def revoke(self, object_key: str) -> int:
        async with self._transaction() as transaction:
            return await transaction.fetchval(_REVOKE, object_key)


def _read_target(row: Row) -> ScanTarget:
    return ScanTarget(row["id"], row["object_key"], row["size"], row["verdict"], row["revoked"])
