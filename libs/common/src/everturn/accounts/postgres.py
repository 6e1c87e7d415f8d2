"""Credentials and usage in Postgres: services call functions; only an operator reads and writes the rows."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, time

from everturn.accounts.credentials import ANY, ApiKey
from everturn.accounts.usage import UsageTotal
from everturn.core.identity import Principal, read_roles
from everturn.postgres.pool import Connection, Database, Row, replace_nul

_FIND_KEY = "SELECT * FROM find_api_key($1)"
_FIND_CUTOFF = "SELECT find_credential_cutoff($1, $2, $3)"
_SAVE_KEY = """
INSERT INTO api_key (id, secret_hash, tenant, project, user_id, roles, label, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_LOAD_KEYS = """
SELECT id, secret_hash, tenant, project, user_id, roles, label, created_at, expires_at, revoked_at, last_used_on
  FROM api_key WHERE $1::text IS NULL OR tenant = $1 ORDER BY created_at DESC, id LIMIT $2
"""
_REVOKE_KEY = "UPDATE api_key SET revoked_at = clock_timestamp() WHERE id = $1 AND revoked_at IS NULL"
_SAVE_CUTOFF = """
INSERT INTO credential_cutoff (tenant, project, user_id, not_before) VALUES ($1, $2, $3, clock_timestamp())
ON CONFLICT (tenant, project, user_id) DO UPDATE SET not_before = EXCLUDED.not_before
RETURNING not_before
"""

# A trigger adds rows deleted from usage_event to usage_total, in the same transaction (`migrations/sql/triggers.sql`).
_REPORT = """
SELECT tenant, project, user_id, day, model, role, sum(calls)::bigint AS calls,
       sum(unpriced_calls)::bigint AS unpriced_calls, sum(estimated_calls)::bigint AS estimated_calls,
       sum(input_tokens)::bigint AS input_tokens, sum(output_tokens)::bigint AS output_tokens,
       sum(cache_read_tokens)::bigint AS cache_read_tokens, sum(cache_write_tokens)::bigint AS cache_write_tokens,
       sum(cost_usd) AS cost_usd
  FROM (
    SELECT tenant, project, user_id, day, model, role, calls, unpriced_calls, estimated_calls, input_tokens,
           output_tokens, cache_read_tokens, cache_write_tokens, cost_usd
      FROM usage_total WHERE day >= $2 AND day < $3
    UNION ALL
    SELECT tenant, project, user_id, (ts AT TIME ZONE 'UTC')::date, model, role, 1, (NOT cost_known)::int,
           estimated::int, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd
      FROM usage_event
     WHERE ts >= $2::date::timestamp AT TIME ZONE 'UTC' AND ts < $3::date::timestamp AT TIME ZONE 'UTC'
  ) AS used
 WHERE $1::text IS NULL OR tenant = $1
 GROUP BY tenant, project, user_id, day, model, role
 ORDER BY day, tenant, project, user_id, model, role LIMIT $4
"""


class PostgresCredentials:
    """Needs the ingress's role."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_key(self, key_id: str) -> ApiKey | None:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_FIND_KEY, key_id)
        return _read_key(row) if row else None

    async def find_cutoff(self, principal: Principal) -> datetime | None:
        async with self._database.connection() as connection:
            return await connection.fetchval(_FIND_CUTOFF, *principal.owner)


class PostgresCredentialAdmin:
    """Needs the migrating role, which becomes everturn_dispatch for each transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Connection]:
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute("SET LOCAL ROLE everturn_dispatch")
            yield connection

    async def save_key(self, key: ApiKey) -> None:
        async with self._transaction() as transaction:
            await transaction.execute(
                _SAVE_KEY,
                key.key_id,
                key.secret_hash,
                key.owner.tenant,
                key.owner.project,
                key.owner.user_id,
                sorted(key.owner.roles),
                replace_nul(key.label),
                key.created_at,
                key.expires_at,
            )

    async def load_keys(self, *, tenant: str | None = None, limit: int = 1000) -> tuple[ApiKey, ...]:
        async with self._transaction() as transaction:
            return tuple(map(_read_key, await transaction.fetch(_LOAD_KEYS, tenant, limit)))

    async def revoke_key(self, key_id: str) -> bool:
        async with self._transaction() as transaction:
            return await transaction.execute(_REVOKE_KEY, key_id) == "UPDATE 1"

    async def save_cutoff(self, user_id: str, *, tenant: str = ANY, project: str = ANY) -> datetime:
        async with self._transaction() as transaction:
            return await transaction.fetchval(_SAVE_CUTOFF, tenant, project, user_id)


def _read_key(row: Row) -> ApiKey:
    used = row["last_used_on"]
    return ApiKey(
        key_id=row["id"],
        secret_hash=row["secret_hash"],
        owner=Principal(row["tenant"], row["project"], row["user_id"], read_roles(row["roles"])),
        label=row["label"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        last_used=datetime.combine(used, time(), UTC) if used else None,
    )


class PostgresUsageReport:
    """Needs the migrating role, which becomes everturn_dispatch: the report covers all users."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, *, tenant: str | None, start: date, end: date, limit: int) -> tuple[UsageTotal, ...]:
        """Totals of the days from `start` to before `end`, at most `limit` rows; of one tenant or of all."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute("SET LOCAL ROLE everturn_dispatch")
            rows = await connection.fetch(_REPORT, tenant, start, end, limit)
        return tuple(UsageTotal(**row) for row in rows)
