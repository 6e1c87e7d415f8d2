"""Collections in Postgres, under the principal's policies."""

from collections.abc import Mapping, Sequence
from typing import Any

from everturn.core.errors import Conflict, NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ArtifactId, CollectionId
from everturn.files.model import Upload
from everturn.knowledge.collections import (
    MAX_COLLECTION_BYTES,
    MAX_COLLECTION_DOCUMENTS,
    MAX_COLLECTIONS,
    Added,
    Collection,
    CollectionDocument,
    CollectionJob,
    CollectionScope,
)
from everturn.postgres.pool import Connection, Database, Row, replace_nul

SETTLE_S = 1.5
"""How long a collection must be left alone before it is indexed, so that several uploads are indexed together."""
ENCODER_REST_S = 300
"""How long an index is left alone before a worker with another encoder builds it again: while the encoder of a
deployment changes, its workers must not take turns."""
MAX_ERROR_CHARS = 1_000

# Serializes changes to what a person owns, so that limits hold.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 5))"
_COUNT = "SELECT count(*) FROM collection WHERE tenant = $1 AND project = $2 AND user_id = $3"
_CREATE = """
INSERT INTO collection (id, tenant, project, user_id, title, scope, created_at, due_at)
VALUES ($4, $1, $2, $3, $5, $6, clock_timestamp(), 'infinity')
"""
_LIST = """
SELECT c.id, c.title, c.scope, c.user_id AS owner, c.created_at, c.error, count(d.id)::integer AS documents,
       (count(d.id) FILTER (WHERE NOT d.indexed AND d.error IS NULL))::integer AS waiting
  FROM collection c LEFT JOIN collection_document d ON d.collection_id = c.id
 WHERE c.tenant = $1 AND c.project = $2 AND ($4::text IS NULL OR c.id = $4)
 GROUP BY c.id ORDER BY c.user_id <> $3, c.title, c.id LIMIT $5
"""
_RENAME = "UPDATE collection SET title = $2 WHERE id = $1"
_KEYS = "SELECT object_key FROM collection_document WHERE collection_id = $1"
_DELETE = "DELETE FROM collection WHERE id = $1"
_TOUCH = """
UPDATE collection
   SET revision = revision + 1, due_at = clock_timestamp() + $2 * interval '1 s', tries = 0, error = NULL
 WHERE id = $1
"""
_OWNED = "SELECT FROM collection WHERE id = $1 AND user_id = $2"
_TOTALS = "SELECT count(*) AS files, COALESCE(sum(size), 0) AS bytes FROM collection_document WHERE collection_id = $1"
_NAMED = """
SELECT id, name, mime, size, sha256, object_key, added_at, indexed, error FROM collection_document
 WHERE collection_id = $1 AND name = ANY ($2)
"""
_DOCUMENTS = """
SELECT id, name, mime, size, sha256, object_key, added_at, indexed, error FROM collection_document
 WHERE collection_id = $1 ORDER BY name
"""
_INSERT = """
INSERT INTO collection_document (id, collection_id, tenant, project, user_id, name, mime, size, sha256, object_key,
                                 added_at)
VALUES ($5, $4, $1, $2, $3, $6, $7, $8, $9, $10, clock_timestamp())
ON CONFLICT (collection_id, name) DO UPDATE
   SET mime = EXCLUDED.mime, size = EXCLUDED.size, sha256 = EXCLUDED.sha256, object_key = EXCLUDED.object_key,
       added_at = EXCLUDED.added_at, indexed = false, error = NULL
RETURNING id, name, mime, size, sha256, object_key, added_at, indexed, error
"""
_DELETE_DOCUMENT = """
DELETE FROM collection_document WHERE collection_id = $1 AND id = $2 RETURNING object_key
"""
_CLAIM = "SELECT id, tenant, project, user_id, revision FROM claim_collection($1)"
_PRUNE = "SELECT prune_collection($1, $2)"
_FINISH = """
UPDATE collection SET built_revision = $2, built_encoder = $3, tries = 0, error = NULL,
       due_at = clock_timestamp() + CASE WHEN revision > $2 THEN 0 ELSE $4::integer END * interval '1 s'
 WHERE id = $1 AND built_revision <= $2
"""
_INDEXED = """
UPDATE collection_document d SET indexed = w.error IS NULL, error = w.error
  FROM unnest($2::text[], $3::text[], $4::text[]) AS w (id, sha256, error)
 WHERE d.collection_id = $1 AND d.id = w.id AND d.sha256 = w.sha256
"""
_FAIL = """
UPDATE collection SET built_revision = $2, built_encoder = $3, error = $4
 WHERE id = $1 AND revision = $2
"""


class PostgresCollections:
    """Implements CollectionBook with the role of the ingress, and CollectionIndex with the worker's."""

    def __init__(self, database: Database, *, settle_s: float = SETTLE_S) -> None:
        self._database = database
        self._settle_s = settle_s

    async def create(
        self, principal: Principal, collection_id: CollectionId, title: str, scope: CollectionScope
    ) -> Collection:
        async with self._database.transaction(principal) as transaction:
            await transaction.fetchval(_LOCK, "\x1f".join(principal.owner))
            if await transaction.fetchval(_COUNT, *principal.owner) >= MAX_COLLECTIONS:
                raise Conflict(f"You have {MAX_COLLECTIONS} collections already, which is the limit.")
            await transaction.execute(_CREATE, *principal.owner, collection_id, title, scope.value)
            return await _load(transaction, principal, collection_id)

    async def load_all(self, principal: Principal) -> tuple[Collection, ...]:
        return await self._load_list(principal, limit=1_000)

    async def load_readable(self, principal: Principal) -> tuple[Collection, ...]:
        found = await self._load_list(principal, limit=10 * MAX_COLLECTIONS)
        return tuple(each for each in found if each.documents)[:MAX_COLLECTIONS]

    async def _load_list(self, principal: Principal, *, limit: int) -> tuple[Collection, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return tuple(map(_read, await transaction.fetch(_LIST, *principal.owner, None, limit)))

    async def check_owned(self, principal: Principal, collection_id: CollectionId) -> None:
        async with self._database.transaction(principal, readonly=True) as transaction:
            if await transaction.fetchrow(_OWNED, collection_id, principal.user_id) is None:
                raise NotFound()

    async def rename(self, principal: Principal, collection_id: CollectionId, title: str) -> Collection:
        async with self._database.transaction(principal) as transaction:
            if await transaction.execute(_RENAME, collection_id, title) == "UPDATE 0":
                raise NotFound()
            return await _load(transaction, principal, collection_id)

    async def delete(self, principal: Principal, collection_id: CollectionId) -> tuple[str, ...]:
        async with self._database.transaction(principal) as transaction:
            await _lock_owned(transaction, principal, collection_id)
            keys = tuple(row["object_key"] for row in await transaction.fetch(_KEYS, collection_id))
            await transaction.execute(_DELETE, collection_id)
        return keys

    async def add_documents(
        self, principal: Principal, collection_id: CollectionId, documents: Sequence[Upload]
    ) -> Added:
        async with self._database.transaction(principal) as transaction:
            await _lock_owned(transaction, principal, collection_id)
            names = [document.filename for document in documents]
            before = {row["name"]: row for row in await transaction.fetch(_NAMED, collection_id, names)}
            added: list[CollectionDocument] = []
            unused: list[str] = []
            changed = False
            for new in documents:
                old = before.get(new.filename)
                if old is not None and old["sha256"] == new.sha256:
                    unused.append(new.object_key)
                    added.append(_read_document(old))
                    continue
                if old is not None:
                    unused.append(old["object_key"])
                row = await transaction.fetchrow(
                    _INSERT,
                    *principal.owner,
                    collection_id,
                    new.id,
                    new.filename,
                    new.mime,
                    new.size,
                    new.sha256,
                    new.object_key,
                )
                changed = True
                added += [] if row is None else [_read_document(row)]
            await _check_totals(transaction, collection_id)
            if changed:
                await transaction.execute(_TOUCH, collection_id, self._settle_s)
        return Added(tuple(added), tuple(unused))

    async def load_documents(self, principal: Principal, collection_id: CollectionId) -> tuple[CollectionDocument, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            await _load(transaction, principal, collection_id)
            return tuple(map(_read_document, await transaction.fetch(_DOCUMENTS, collection_id)))

    async def delete_document(self, principal: Principal, collection_id: CollectionId, document_id: ArtifactId) -> str:
        async with self._database.transaction(principal) as transaction:
            await _lock_owned(transaction, principal, collection_id)
            key = await transaction.fetchval(_DELETE_DOCUMENT, collection_id, document_id)
            if key is None:
                raise NotFound()
            await transaction.execute(_TOUCH, collection_id, self._settle_s)
        return key

    async def try_claim(self, encoder: str) -> CollectionJob | None:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_CLAIM, encoder)
        if row is None:
            return None
        return CollectionJob(row["id"], Principal(row["tenant"], row["project"], row["user_id"]), row["revision"])

    async def load_job(self, job: CollectionJob) -> tuple[CollectionDocument, ...]:
        async with self._database.transaction(job.owner, readonly=True) as transaction:
            return tuple(map(_read_document, await transaction.fetch(_DOCUMENTS, job.id)))

    async def prune(self, collection_id: CollectionId, signature: str) -> None:
        async with self._database.connection() as connection:
            await connection.execute(_PRUNE, collection_id, signature)

    async def finish(
        self, job: CollectionJob, encoder: str, documents: Sequence[CollectionDocument], refused: Mapping[str, str]
    ) -> None:
        marks = [each.id for each in documents], [each.sha256 for each in documents]
        errors = [refused.get(each.name) for each in documents]
        async with self._database.transaction(job.owner) as transaction:
            await transaction.execute(_INDEXED, job.id, *marks, [error and _cut(error) for error in errors])
            await transaction.execute(_FINISH, job.id, job.revision, encoder, ENCODER_REST_S)

    async def fail(self, job: CollectionJob, encoder: str, error: str) -> None:
        async with self._database.transaction(job.owner) as transaction:
            await transaction.execute(_FAIL, job.id, job.revision, encoder, _cut(error))


async def _lock_owned(transaction: Connection, principal: Principal, collection_id: CollectionId) -> None:
    if await transaction.fetchrow(f"{_OWNED} FOR UPDATE", collection_id, principal.user_id) is None:
        raise NotFound()


async def _load(transaction: Connection, principal: Principal, collection_id: CollectionId) -> Collection:
    row = await transaction.fetchrow(_LIST, *principal.owner, collection_id, 1)
    if row is None:
        raise NotFound()
    return _read(row)


async def _check_totals(transaction: Connection, collection_id: CollectionId) -> None:
    row = await transaction.fetchrow(_TOTALS, collection_id)
    if row is not None and row["files"] > MAX_COLLECTION_DOCUMENTS:
        raise Conflict(f"A collection can have at most {MAX_COLLECTION_DOCUMENTS} documents.")
    if row is not None and row["bytes"] > MAX_COLLECTION_BYTES:
        raise Conflict(f"The files of a collection can have at most {MAX_COLLECTION_BYTES} bytes together.")


def _cut(error: str) -> str:
    return replace_nul(error[:MAX_ERROR_CHARS])


def _read(row: Row) -> Collection:
    return Collection(
        id=row["id"],
        title=row["title"],
        scope=CollectionScope(row["scope"]),
        owner=row["owner"],
        created_at=row["created_at"],
        documents=row["documents"],
        waiting=row["waiting"],
        error=row["error"] or "",
    )


def _read_document(row: Row) -> CollectionDocument:
    values: dict[str, Any] = {**row, "error": row["error"] or ""}
    return CollectionDocument(**values)
