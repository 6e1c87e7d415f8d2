"""Memory search in Postgres: snippets through the function that takes the principal, turns under its policy."""

from collections.abc import Sequence

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.model.memory.snippets import SnippetTarget
from everturn.ports.memory.search import (
    CatalogPage,
    CatalogQuery,
    CatalogTurn,
    FoundSnippet,
    SnippetQuery,
)
from everturn.postgres.database import Connection, Database, Row
from everturn.postgres.memory.lexemes import build_query_lexemes
from everturn.postgres.memory.texts import load_text_blocks
from everturn.postgres.memory.vectors import build_vector_text
from everturn.postgres.rows import storable

EXACT_ROWS = 20_000
"""Up to so many snippets of a person, a question is compared with each of them; that takes about 10 ms."""

_FIND = """
SELECT * FROM search_snippets($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::text::vector, $13, $14, $15, $16)
"""
_COUNT = """
SELECT count(*) FROM turn
 WHERE tenant = $1 AND project = $2 AND user_id = $3 AND ($4::text IS NULL OR conversation_id = $4)
   AND id IS DISTINCT FROM $5
   AND created_at >= COALESCE($6::timestamptz, '-infinity') AND created_at < COALESCE($7::timestamptz, 'infinity')
"""
_TURNS = """
SELECT id, conversation_id, ordinal, created_at FROM turn
 WHERE tenant = $1 AND project = $2 AND user_id = $3 AND ($4::text IS NULL OR conversation_id = $4)
   AND id IS DISTINCT FROM $5
   AND created_at >= COALESCE($6::timestamptz, '-infinity') AND created_at < COALESCE($7::timestamptz, 'infinity')
 ORDER BY created_at, id OFFSET $8 LIMIT $9
"""
_TURNS_NEWEST_FIRST = _TURNS.replace("created_at, id OFFSET", "created_at DESC, id DESC OFFSET")


class PostgresMemorySearch:
    """Works with the roles of worker and ingress, which may call the function."""

    def __init__(self, database: Database, *, exact_rows: int = EXACT_ROWS) -> None:
        self._database = database
        self._exact_rows = exact_rows

    async def find_snippets(self, principal: Principal, query: SnippetQuery) -> tuple[FoundSnippet, ...]:
        lexemes, weights = build_query_lexemes(principal, storable(query.text))
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                _FIND,
                principal.tenant,
                principal.project,
                principal.user_id,
                query.scope.conversation_id,
                query.scope.except_turn,
                sorted(query.targets),
                query.since,
                query.until,
                lexemes,
                weights,
                query.vector and query.vector.encoder,
                query.vector and build_vector_text(query.vector.vector),
                query.limit,
                query.per_conversation,
                query.now,
                self._exact_rows,
            )
        return tuple(map(_read_found, rows))

    async def load_catalog(self, principal: Principal, query: CatalogQuery) -> CatalogPage:
        scope = query.scope
        owner = principal.owner
        where = (*owner, scope.conversation_id, scope.except_turn, query.since, query.until)
        page = _TURNS_NEWEST_FIRST if query.newest_first else _TURNS
        async with self._database.transaction(principal, readonly=True) as transaction:
            total = await transaction.fetchval(_COUNT, *where)
            rows = await transaction.fetch(page, *where, query.skip, query.limit)
            turns = await _load_turns(transaction, rows)
        return CatalogPage(turns, int(total))


async def _load_turns(transaction: Connection, rows: Sequence[Row]) -> tuple[CatalogTurn, ...]:
    blocks = {row["id"]: await load_text_blocks(transaction, row["conversation_id"], row["id"]) for row in rows}
    return tuple(
        CatalogTurn(
            ConversationId(row["conversation_id"]),
            TurnId(row["id"]),
            row["ordinal"],
            row["created_at"],
            blocks[row["id"]],
        )
        for row in rows
    )


def _read_found(row: Row) -> FoundSnippet:
    return FoundSnippet(
        conversation_id=row["conversation_id"],
        turn_id=row["turn_id"],
        target=SnippetTarget(row["target"]),
        ref=row["ref"],
        text=row["text"],
        ts=row["ts"],
        score=row["score"],
    )
