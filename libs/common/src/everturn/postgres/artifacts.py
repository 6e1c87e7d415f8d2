"""Artifact rows in Postgres: finding one of the principal's, and writing those of a message or a commit."""

from collections.abc import Sequence

from everturn.errors import NotFound
from everturn.model.artifacts import Artifact
from everturn.model.identity import Principal
from everturn.model.ids import ArtifactId, ConversationId
from everturn.postgres.database import Connection, Database
from everturn.postgres.rows import read_artifact, storable

_BY_ID = """
SELECT id, turn_id, ref, rn, kind, filename, path, mime, size, sha256, object_key, visibility, verdict,
       description
  FROM artifact WHERE id = $1
"""
_BY_REF = """
SELECT id, turn_id, ref, rn, kind, filename, path, mime, size, sha256, object_key, visibility, verdict,
       description
  FROM artifact WHERE conversation_id = $1 AND ref = $2 ORDER BY id DESC LIMIT 1
"""
_INSERT = """
INSERT INTO artifact (conversation_id, tenant, project, user_id, id, turn_id, ref, rn, kind, filename, path, mime, size,
                      sha256, object_key, visibility, verdict, description)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
"""
_UNREFERENCED = """
SELECT key FROM unnest($2::text[]) AS key
 WHERE NOT EXISTS (SELECT FROM artifact WHERE conversation_id = $1 AND object_key = key)
"""


class PostgresArtifacts:
    """Where a ref names several files, the newest is meant."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, principal: Principal, artifact_id: ArtifactId) -> Artifact:
        return await self._load(principal, _BY_ID, artifact_id)

    async def load_by_ref(self, principal: Principal, conversation_id: ConversationId, ref: str) -> Artifact:
        return await self._load(principal, _BY_REF, conversation_id, ref)

    async def load_unreferenced(
        self, principal: Principal, conversation_id: ConversationId, object_keys: Sequence[str]
    ) -> tuple[str, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_UNREFERENCED, conversation_id, list(object_keys))
        return tuple(row["key"] for row in rows)

    async def _load(self, principal: Principal, query: str, *args: str) -> Artifact:
        async with self._database.transaction(principal, readonly=True) as transaction:
            row = await transaction.fetchrow(query, *args)
        if row is None:
            raise NotFound(args[-1])
        return read_artifact(row)


async def append_artifacts(
    transaction: Connection, principal: Principal, conversation_id: ConversationId, artifacts: Sequence[Artifact]
) -> None:
    """Insert rows; their objects are stored already."""
    owner = (conversation_id, principal.tenant, principal.project, principal.user_id)
    if artifacts:
        await transaction.executemany(_INSERT, [owner + _columns(artifact) for artifact in artifacts])


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
        storable(artifact.description),
    )
