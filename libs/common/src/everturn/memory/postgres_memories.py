"""Durable user memory in Postgres, under the principal's policy."""

from collections.abc import Sequence
from typing import LiteralString

from everturn.core.errors import Conflict
from everturn.core.identity import Principal
from everturn.core.ids import TurnId
from everturn.memory.postgres_search import build_vector_text
from everturn.memory.search import QueryVector
from everturn.memory.user_memories import MAX_MEMORIES, Candidate, ForgottenByOwner, MemoryPosition, UserMemory
from everturn.postgres.pool import Connection, Database, Row, replace_nul

EVERYTHING = "*"

# Serializes changes to a person's memories: erasing waits for writing, and vice versa.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 4))"
_ERASED_SINCE = """
SELECT EXISTS (SELECT FROM forgotten_memory f, turn t
                WHERE t.id = $1 AND f.id = ANY ($2) AND t.started_at <= f.forgotten_at)
"""
_ERASE_ONE = "DELETE FROM user_memory WHERE id = $1"
_ERASE_ALL = "DELETE FROM user_memory"
_SAVE_TOMBSTONE = """
INSERT INTO forgotten_memory (tenant, project, user_id, id, forgotten_at) VALUES ($1, $2, $3, $4, clock_timestamp())
ON CONFLICT (tenant, project, user_id, id) DO UPDATE SET forgotten_at = EXCLUDED.forgotten_at
"""
_CLEAR_OLD = "DELETE FROM forgotten_memory WHERE forgotten_at < clock_timestamp() - interval '7 days'"
_PAGE = """
SELECT id, text, labels, pinned, confidence, salience, created_at, updated_at FROM user_memory
 WHERE tenant = $1 AND project = $2 AND user_id = $3 AND ($4::timestamptz IS NULL OR (updated_at, id) < ($4, $5))
 ORDER BY updated_at DESC, id DESC LIMIT $6
"""
_OTHERS = "SELECT count(*) FROM user_memory WHERE id <> $1"
_SAVE = """
INSERT INTO user_memory (tenant, project, user_id, id, text, labels, pinned, confidence, salience, encoder, embedding,
                         created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::vector, $12, $13)
ON CONFLICT (tenant, project, user_id, id) DO UPDATE
   SET text = EXCLUDED.text, labels = EXCLUDED.labels, pinned = EXCLUDED.pinned, confidence = EXCLUDED.confidence,
       salience = EXCLUDED.salience, encoder = EXCLUDED.encoder, embedding = EXCLUDED.embedding,
       updated_at = EXCLUDED.updated_at
 WHERE user_memory.updated_at <= EXCLUDED.updated_at
"""
_LOAD = """
SELECT id, text, labels, pinned, confidence, salience, created_at, updated_at
  FROM user_memory WHERE id = ANY ($1) ORDER BY array_position($1, id)
"""
_HOTSET = """
SELECT id, text, labels, pinned, confidence, salience, created_at, updated_at
  FROM user_memory ORDER BY pinned DESC, salience * confidence DESC, updated_at DESC, id LIMIT $1
"""
_CANDIDATES = """
SELECT id, text, labels, pinned, confidence, salience, created_at, updated_at,
       CASE WHEN encoder = $1 THEN -(embedding <#> $2::text::vector) END AS likeness
  FROM user_memory ORDER BY updated_at DESC, id LIMIT $3
"""


class PostgresUserMemories:
    """Implements UserMemories with the worker's role, and MemoryBook with the role of the ingress."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(
        self,
        principal: Principal,
        memory: UserMemory,
        vector: QueryVector | None,
        *,
        turn_id: TurnId | None = None,
        instead_of: str = "",
    ) -> None:
        async with self._database.transaction(principal) as transaction:
            await _lock(transaction, principal)
            if await transaction.fetchval(_ERASED_SINCE, turn_id, [memory.id, instead_of, EVERYTHING]):
                raise ForgottenByOwner()
            if await transaction.fetchval(_OTHERS, memory.id) >= MAX_MEMORIES:
                raise Conflict(f"There are {MAX_MEMORIES} memories already, which is the limit.")
            # A worker that was paused can resume with an older value: the newer one is kept.
            await transaction.execute(
                _SAVE,
                principal.tenant,
                principal.project,
                principal.user_id,
                memory.id,
                replace_nul(memory.text),
                [replace_nul(label) for label in memory.labels],
                memory.pinned,
                memory.confidence,
                memory.salience,
                vector.encoder if vector else "",
                build_vector_text(vector.vector) if vector else None,
                memory.created_at,
                memory.updated_at,
            )

    async def forget(self, principal: Principal, memory_id: str) -> bool:
        async with self._database.transaction(principal) as transaction:
            return await transaction.execute("DELETE FROM user_memory WHERE id = $1", memory_id) == "DELETE 1"

    async def erase(self, principal: Principal, memory_id: str) -> bool:
        async with self._database.transaction(principal) as transaction:
            return await _erase(transaction, principal, memory_id, _ERASE_ONE, memory_id) == 1

    async def erase_all(self, principal: Principal) -> int:
        async with self._database.transaction(principal) as transaction:
            return await _erase(transaction, principal, EVERYTHING, _ERASE_ALL)

    async def load_page(
        self, principal: Principal, *, limit: int, after: MemoryPosition | None
    ) -> tuple[UserMemory, ...]:
        owner = principal.owner
        place = (after.updated_at, after.id) if after else (None, None)
        async with self._database.transaction(principal, readonly=True) as transaction:
            return tuple(map(_read_memory, await transaction.fetch(_PAGE, *owner, *place, limit)))

    async def load(self, principal: Principal, memory_ids: Sequence[str]) -> tuple[UserMemory, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return tuple(map(_read_memory, await transaction.fetch(_LOAD, list(memory_ids))))

    async def load_hotset(self, principal: Principal, limit: int) -> tuple[UserMemory, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return tuple(map(_read_memory, await transaction.fetch(_HOTSET, limit)))

    async def load_candidates(self, principal: Principal, near: QueryVector | None) -> tuple[Candidate, ...]:
        asked = (near.encoder, build_vector_text(near.vector)) if near else (None, None)
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_CANDIDATES, *asked, MAX_MEMORIES)
        return tuple(Candidate(_read_memory(row), row["likeness"]) for row in rows)


async def _lock(transaction: Connection, principal: Principal) -> None:
    await transaction.fetchval(_LOCK, "\x1f".join(principal.owner))


async def _erase(transaction: Connection, principal: Principal, what: str, statement: LiteralString, *args: str) -> int:
    """Returns the number of deleted rows. A memory that did not exist is not recorded as forgotten, except when erasing
    all."""
    await _lock(transaction, principal)
    await transaction.execute(_CLEAR_OLD)
    erased = int((await transaction.execute(statement, *args)).removeprefix("DELETE "))
    if erased or what == EVERYTHING:
        await transaction.execute(_SAVE_TOMBSTONE, *principal.owner, what)
    return erased


def _read_memory(row: Row) -> UserMemory:
    return UserMemory(
        id=row["id"],
        text=row["text"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        labels=tuple(row["labels"]),
        pinned=row["pinned"],
        confidence=row["confidence"],
        salience=row["salience"],
    )
