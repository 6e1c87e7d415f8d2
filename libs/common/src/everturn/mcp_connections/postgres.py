"""People's connections in Postgres, under the principal's policy."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from everturn.core.identity import Principal
from everturn.mcp_connections.connections import (
    MAX_ANSWERED,
    REQUEST_S,
    AnsweredRequest,
    ConnectAnswer,
    Connection,
    ConnectRequest,
    OpenRequest,
    ServerKey,
    StoredTokens,
    hash_state,
)
from everturn.postgres.pool import Database

# The use is noted once an hour, for `remove_expired_rows`.
_LOAD = """
WITH used AS (
    UPDATE mcp_connection SET used_at = clock_timestamp()
     WHERE bundle_id = $1 AND server = $2 AND used_at < clock_timestamp() - interval '1 hour'
)
SELECT sealed, version, connected_at IS NULL AND lease_until <= clock_timestamp() AS is_interrupted
  FROM mcp_connection WHERE bundle_id = $1 AND server = $2
"""
_LEASE = """
UPDATE mcp_connection SET lease_until = clock_timestamp() + $4::interval
 WHERE bundle_id = $1 AND server = $2 AND version = $3
   AND (lease_until IS NULL OR lease_until < clock_timestamp())
"""
_REPLACE = """
UPDATE mcp_connection SET sealed = $4, version = version + 1, lease_until = NULL,
       connected_at = COALESCE(connected_at, clock_timestamp())
 WHERE bundle_id = $1 AND server = $2 AND version = $3
"""
_RELEASE = "UPDATE mcp_connection SET lease_until = NULL WHERE bundle_id = $1 AND server = $2 AND version = $3"
_DELETE_VERSION = "DELETE FROM mcp_connection WHERE bundle_id = $1 AND server = $2 AND version = $3"
_SAVE_REQUEST = """
INSERT INTO mcp_request (approval_id, state_hash, conversation_id, tenant, project, user_id, bundle_id, server, title,
                         sealed, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp() + $11::interval)
ON CONFLICT (approval_id) DO UPDATE
   SET state_hash = EXCLUDED.state_hash, sealed = EXCLUDED.sealed, expires_at = EXCLUDED.expires_at, code = NULL,
       issuer = NULL, answered_at = NULL, answer_hash = NULL
 WHERE mcp_request.code IS NULL
"""
_ANSWERED = """
SELECT approval_id, sealed FROM mcp_request WHERE bundle_id = $1 AND server = $2 AND code IS NOT NULL
 ORDER BY answered_at DESC LIMIT $3 FOR UPDATE
"""
# The number of the transaction, which grows with each renewal, too, so that no version of a deleted connection returns.
_CLAIM = """
WITH answered AS (
    SELECT * FROM mcp_request WHERE bundle_id = $1 AND server = $2 AND approval_id = ANY($5)
), used AS (
    UPDATE mcp_request r SET code = NULL FROM answered a WHERE r.approval_id = a.approval_id RETURNING a.*
), latest AS (
    SELECT * FROM used WHERE answered_at > clock_timestamp() - $4::interval ORDER BY answered_at DESC LIMIT 1
), held AS (
    INSERT INTO mcp_connection (tenant, project, user_id, bundle_id, server, title, lease_until, version)
    SELECT tenant, project, user_id, bundle_id, server, title, clock_timestamp() + $3::interval,
           (pg_current_xact_id()::text::bigint & 1073741823)::integer FROM latest
    ON CONFLICT (tenant, project, user_id, bundle_id, server) DO UPDATE
       SET title = EXCLUDED.title, version = mcp_connection.version + 1, lease_until = EXCLUDED.lease_until,
           sealed = NULL, connected_at = NULL
     WHERE mcp_connection.version = $6
        OR (mcp_connection.connected_at IS NULL AND mcp_connection.lease_until <= clock_timestamp())
    RETURNING version
)
SELECT latest.sealed, latest.code, latest.issuer, held.version FROM latest, held
"""
_LIST = """
SELECT bundle_id, server, title, connected_at FROM mcp_connection WHERE connected_at IS NOT NULL
 ORDER BY connected_at DESC LIMIT 1000
"""
_DELETE = "DELETE FROM mcp_connection WHERE $1::text IS NULL OR (bundle_id = $1 AND server = $2)"
_DELETE_ANSWERS = """
DELETE FROM mcp_request WHERE answered_at IS NOT NULL AND ($1::text IS NULL OR (bundle_id = $1 AND server = $2))
"""


class PostgresConnections:
    """Implements TokenStore with the worker's role, and ConnectionBook with the role of the ingress."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, principal: Principal, key: ServerKey) -> StoredTokens | None:
        async with self._database.transaction(principal) as transaction:
            row = await transaction.fetchrow(_LOAD, key.bundle_id, key.server)
        return None if row is None else StoredTokens(row["sealed"], row["version"], row["is_interrupted"])

    async def try_lease(self, principal: Principal, key: ServerKey, version: int, *, lease_s: float) -> bool:
        async with self._database.transaction(principal) as transaction:
            done = await transaction.execute(_LEASE, key.bundle_id, key.server, version, timedelta(seconds=lease_s))
        return done == "UPDATE 1"

    async def replace(self, principal: Principal, key: ServerKey, version: int, sealed: bytes) -> bool:
        async with self._database.transaction(principal) as transaction:
            return await transaction.execute(_REPLACE, key.bundle_id, key.server, version, sealed) == "UPDATE 1"

    async def release(self, principal: Principal, key: ServerKey, version: int) -> None:
        async with self._database.transaction(principal) as transaction:
            await transaction.execute(_RELEASE, key.bundle_id, key.server, version)

    async def delete_version(self, principal: Principal, key: ServerKey, version: int) -> None:
        async with self._database.transaction(principal) as transaction:
            await transaction.execute(_DELETE_VERSION, key.bundle_id, key.server, version)

    async def save_request(self, principal: Principal, key: ServerKey, request: ConnectRequest) -> bool:
        async with self._database.transaction(principal) as transaction:
            done = await transaction.execute(
                _SAVE_REQUEST,
                request.approval_id,
                request.state_hash,
                request.conversation_id,
                *principal.owner,
                key.bundle_id,
                key.server,
                request.title,
                request.sealed,
                timedelta(seconds=REQUEST_S),
            )
        return done == "INSERT 0 1"

    async def claim_answer(
        self,
        principal: Principal,
        key: ServerKey,
        *,
        accepts: Callable[[bytes], bool],
        lease_s: float,
        replaced: int | None = None,
    ) -> ConnectAnswer | None:
        times = timedelta(seconds=lease_s), timedelta(seconds=REQUEST_S)
        async with self._database.transaction(principal) as transaction:
            answered = await transaction.fetch(_ANSWERED, key.bundle_id, key.server, MAX_ANSWERED)
            accepted = [each["approval_id"] for each in answered if accepts(each["sealed"])]
            if not accepted:
                return None
            row = await transaction.fetchrow(_CLAIM, key.bundle_id, key.server, *times, accepted, replaced)
        return None if row is None else ConnectAnswer(row["sealed"], row["code"], row["issuer"], row["version"])

    async def load_all(self, principal: Principal) -> Sequence[Connection]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_LIST)
        return [Connection(row["bundle_id"], row["server"], row["title"], row["connected_at"]) for row in rows]

    async def delete(self, principal: Principal, key: ServerKey | None = None) -> int:
        bundle_id, server = (None, None) if key is None else (key.bundle_id, key.server)
        async with self._database.transaction(principal) as transaction:
            await transaction.execute(_DELETE_ANSWERS, bundle_id, server)
            done = await transaction.execute(_DELETE, bundle_id, server)
        return int(done.rpartition(" ")[2])

    async def find_request(self, state: str, key: ServerKey, code: str | None) -> OpenRequest | None:
        given = hash_state(state), key.bundle_id, key.server, code
        async with self._database.connection() as connection:
            row = await connection.fetchrow("SELECT * FROM find_mcp_request($1, $2, $3, $4)", *given)
        if row is None:
            return None
        return OpenRequest(Principal(row["tenant"], row["project"], row["user_id"]), row["title"])

    async def answer_request(
        self, state: str, key: ServerKey, code: str | None, issuer: str | None
    ) -> Sequence[AnsweredRequest]:
        given = hash_state(state), key.bundle_id, key.server, code, issuer, MAX_ANSWERED
        async with self._database.connection() as connection:
            rows = await connection.fetch("SELECT * FROM answer_mcp_request($1, $2, $3, $4, $5, $6)", *given)
        return [
            AnsweredRequest(
                Principal(row["tenant"], row["project"], row["user_id"]), row["conversation_id"], row["approval_id"]
            )
            for row in rows
        ]
