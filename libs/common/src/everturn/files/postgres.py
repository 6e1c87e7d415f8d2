"""Rows of files in Postgres: finding the principal's own, writing those of a message or a commit, and rescans."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import LiteralString

from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ArtifactId, ConversationId
from everturn.files.model import WHITEOUT_MIME, Artifact, Rn
from everturn.files.ports import MAX_TARGETS, REVOKED, Revoked, ScanTarget, WorkspaceTurn, check_page, end_of_prefix
from everturn.postgres.pool import Connection, Database, Row, replace_nul

# Newest by commit, because ids of one millisecond have no defined order. The id decides among rows of one commit.
_BY_ID = "SELECT * FROM artifact WHERE id = $1"
_BY_RN = """
SELECT * FROM artifact WHERE conversation_id = $1 AND rn = $2 AND NOT removed ORDER BY created_at DESC, id DESC LIMIT 1
"""
# A turn that only took a file out of its workspace leaves it to be read; one that deleted it from the project does not.
_BY_REF = """
SELECT * FROM (
       SELECT * FROM artifact
        WHERE conversation_id = $1 AND ref = $2 AND (NOT removed OR mime = $3)
        ORDER BY created_at DESC, id DESC LIMIT 1) AS newest
 WHERE NOT removed
"""
_BY_REFS = """
SELECT found.* FROM unnest($2::text[]) AS wanted
 CROSS JOIN LATERAL (
       SELECT * FROM artifact
        WHERE conversation_id = $1 AND ref = wanted AND (NOT removed OR mime = $3)
        ORDER BY created_at DESC, id DESC LIMIT 1) AS found
 WHERE found.revoked_at IS NULL AND NOT found.removed
"""
_TREE = """
SELECT * FROM (
       SELECT DISTINCT ON (ref COLLATE "C") *
         FROM artifact
        WHERE conversation_id = $1 AND ref COLLATE "C" >= $2 AND ref COLLATE "C" < $3 AND ref COLLATE "C" > $4
        ORDER BY ref COLLATE "C", created_at DESC, id DESC) AS newest
 WHERE NOT removed AND revoked_at IS NULL ORDER BY ref COLLATE "C" LIMIT $5
"""
_WORKSPACE_TURNS = """
SELECT turn_id, count(*) AS file_count FROM (
       SELECT DISTINCT ON (turn_id, ref COLLATE "C") turn_id, removed, revoked_at
         FROM artifact
        WHERE conversation_id = $1 AND kind = 'file'
        ORDER BY turn_id DESC, ref COLLATE "C", created_at DESC, id DESC) AS newest
 WHERE NOT removed AND revoked_at IS NULL GROUP BY turn_id ORDER BY turn_id DESC LIMIT $2
"""
_INSERT = """
INSERT INTO artifact (conversation_id, tenant, project, user_id, id, turn_id, ref, rn, kind, filename, path, mime, size,
                      sha256, object_key, visibility, verdict, description, removed)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
"""
_UNREFERENCED = """
SELECT key FROM unnest($1::text[]) AS key
 WHERE NOT EXISTS (SELECT FROM artifact WHERE object_key = key AND revoked_at IS NULL)
"""
# The character after the slash ends the range of the keys that begin with it.
_NAMED = """
SELECT DISTINCT object_key FROM artifact WHERE object_key >= $1 || '/' AND object_key < $1 || '0' AND revoked_at IS NULL
"""

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
WITH updated AS (UPDATE artifact SET revoked_at = COALESCE(revoked_at, now()) WHERE object_key = $1 RETURNING 1)
SELECT count(*) FROM updated
"""


class PostgresArtifacts:
    """Implements Artifacts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, principal: Principal, artifact_id: ArtifactId) -> Artifact:
        return await self._load(principal, _BY_ID, artifact_id)

    async def load_by_rn(self, principal: Principal, rn: Rn) -> Artifact:
        return await self._load(principal, _BY_RN, rn.conversation_id, str(rn))

    async def load_by_ref(self, principal: Principal, conversation_id: ConversationId, ref: str) -> Artifact:
        return await self._load(principal, _BY_REF, conversation_id, ref, WHITEOUT_MIME)

    async def load_by_refs(
        self, principal: Principal, conversation_id: ConversationId, refs: Sequence[str]
    ) -> tuple[Artifact, ...]:
        wanted = list(dict.fromkeys(refs))
        if not wanted:
            return ()
        check_page(len(wanted))
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_BY_REFS, conversation_id, wanted, WHITEOUT_MIME)
        return tuple(map(read_artifact, rows))

    async def load_tree(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        ref_prefix: str,
        *,
        after: str = "",
        limit: int = 100,
    ) -> tuple[Artifact, ...]:
        check_page(limit)
        end = end_of_prefix(ref_prefix)
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_TREE, conversation_id, ref_prefix, end, after, limit)
        return tuple(map(read_artifact, rows))

    async def load_workspace_turns(
        self, principal: Principal, conversation_id: ConversationId, *, limit: int = 5
    ) -> tuple[WorkspaceTurn, ...]:
        check_page(limit)
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_WORKSPACE_TURNS, conversation_id, limit)
        return tuple(WorkspaceTurn(row["turn_id"], row["file_count"]) for row in rows)

    async def load_unreferenced(self, principal: Principal, object_keys: Sequence[str]) -> tuple[str, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_UNREFERENCED, list(object_keys))
        return tuple(row["key"] for row in rows)

    async def load_named_keys(self, principal: Principal, conversation_id: ConversationId) -> frozenset[str]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_NAMED, conversation_id)
        return frozenset(row["object_key"] for row in rows)

    async def _load(self, principal: Principal, query: LiteralString, *args: str) -> Artifact:
        async with self._database.transaction(principal, readonly=True) as transaction:
            row = await transaction.fetchrow(query, *args)
        if row is None:
            raise NotFound(args[-1])
        if row["revoked_at"] is not None:
            raise Revoked(args[-1])
        return read_artifact(row)


async def append_artifacts(
    transaction: Connection, principal: Principal, conversation_id: ConversationId, artifacts: Sequence[Artifact]
) -> None:
    """Insert rows; their objects are already stored."""
    owner = (conversation_id, *principal.owner)
    if artifacts:
        await transaction.executemany(_INSERT, [owner + _columns(artifact) for artifact in artifacts])


def build_artifacts_json(artifacts: Sequence[Artifact]) -> str | None:
    """The rows as a JSON array, for a function that inserts them; None without any."""
    if not artifacts:
        return None
    return json.dumps(
        [
            artifact.model_dump(mode="json") | {"description": replace_nul(artifact.description)}
            for artifact in artifacts
        ]
    )


def _columns(artifact: Artifact) -> tuple[object, ...]:
    """In the order of _INSERT."""
    return (
        artifact.id,
        artifact.turn_id,
        artifact.ref,
        artifact.rn,
        artifact.kind.value,
        artifact.filename,
        artifact.path,
        artifact.mime,
        artifact.size,
        artifact.sha256,
        artifact.object_key,
        artifact.visibility,
        artifact.verdict,
        replace_nul(artifact.description),
        artifact.removed,
    )


def read_artifact(row: Row) -> Artifact:
    return Artifact.model_validate({name: row[name] for name in Artifact.model_fields})


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
