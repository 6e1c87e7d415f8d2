"""The snippet index in Postgres and its search, by words and by meaning; claims use a definer function, and a turn's
snippets are replaced in one transaction."""

import asyncio
from collections.abc import Collection, Sequence
from hashlib import sha256

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.words import find_words
from everturn.memory.embedder import Vector
from everturn.memory.search import (
    MAX_INDEXED_BYTES,
    PAGE_BYTES,
    BlockPage,
    CatalogPage,
    CatalogQuery,
    CatalogTurn,
    EmbeddedSnippet,
    FoundSnippet,
    IndexJob,
    Snippet,
    SnippetQuery,
    SnippetTarget,
)
from everturn.postgres.pool import Connection, Database, Row, replace_nul
from everturn.timeline.blocks import Block, BlockType
from everturn.turns.postgres_rows import BLOCK_COLUMNS, read_block

MAX_SNIPPET_WORDS = 250
MAX_QUERY_WORDS = 16
WORD_WEIGHT = 1.0
ANCHOR_WEIGHT = 3.0
"""A word among the anchors counts four times in total, because it is also a word of the snippet."""

TEXT_TYPES = (
    BlockType.USER_PROMPT,
    BlockType.ATTACHMENT_META,
    BlockType.USER_FOLLOWUP,
    BlockType.USER_STEER,
    BlockType.EXTERNAL_EVENT,
    BlockType.ANCHOR,
    BlockType.COMPLETION,
    BlockType.WORKING_SUMMARY,
)

# The blocks of turn t lie between its first_seq and that of the next turn that has begun, which the primary key finds.
_END_SEQ = """
COALESCE((SELECT n.first_seq FROM turn n
           WHERE n.conversation_id = $1 AND n.ordinal > t.ordinal AND n.first_seq IS NOT NULL
           ORDER BY n.ordinal LIMIT 1), 9223372036854775807)
"""
_BLOCKS = f"""
SELECT {BLOCK_COLUMNS}
  FROM (SELECT b.*, COALESCE(sum(octet_length(b.body))
                             OVER (ORDER BY b.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
          FROM block b, turn t
         WHERE t.id = $2 AND t.conversation_id = $1 AND b.conversation_id = $1 AND b.turn_id = $2
           AND b.type = ANY ($3) AND b.seq >= t.first_seq
           AND b.seq < {_END_SEQ}) AS said
 WHERE bytes_before < $4 ORDER BY seq
"""

_MARK = "UPDATE turn SET indexed_at = clock_timestamp() WHERE id = $1 AND conversation_id = $2"
_CLEAR = "DELETE FROM snippet WHERE conversation_id = $1 AND turn_id = $2"
_INSERT = """
INSERT INTO snippet (conversation_id, tenant, project, user_id, turn_id, encoder, target, ref, text, words,
                     embedding, ts)
SELECT $1, $2, $3, $4, $5, $6, s.target, s.ref, s.text, string_to_array(s.words, ' '), s.embedding::vector,
       s.ts::timestamptz
  FROM unnest($7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
       AS s (target, ref, text, words, embedding, ts)
"""

EXACT_ROWS = 20_000
"""If a person has at most this many snippets, a question is compared with each of them, in about 10 ms."""

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

_PAGE = f"""
SELECT {BLOCK_COLUMNS}, total
  FROM (SELECT b.*, count(*) OVER () AS total,
               COALESCE(sum(octet_length(b.body))
                        OVER (ORDER BY b.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
          FROM block b, turn t
         WHERE t.id = $2 AND t.conversation_id = $1 AND b.conversation_id = $1 AND b.turn_id = $2
           AND b.seq > $3 AND b.seq >= t.first_seq
           AND b.seq < {_END_SEQ}) AS page
 WHERE bytes_before < $4 ORDER BY seq
"""
_BEFORE = f"""
SELECT {BLOCK_COLUMNS}, total
  FROM (SELECT b.*, count(*) OVER () AS total,
               COALESCE(sum(octet_length(b.body))
                        OVER (ORDER BY b.seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_after
          FROM block b
         WHERE b.conversation_id = $1 AND b.seq < $2 AND b.type = ANY($3::text[])) AS page
 WHERE bytes_after < $4 ORDER BY seq
"""
_LAST = f"""
SELECT {BLOCK_COLUMNS}
  FROM block b, turn t
 WHERE t.id = $2 AND t.conversation_id = $1 AND b.conversation_id = $1 AND b.turn_id = $2
   AND b.seq >= t.first_seq
   AND b.seq < {_END_SEQ}
   AND ($3::text IS NULL OR b.ref = $3) AND ($4::text IS NULL OR b.type = $4)
 ORDER BY b.seq DESC LIMIT 1
"""
_PLAN = f"""
SELECT {BLOCK_COLUMNS}
  FROM block
 WHERE conversation_id = $1 AND type = 'react.plan' AND right(ref, length($2)) = $2
 ORDER BY seq DESC LIMIT 1
"""


def build_lexemes(principal: Principal, snippet: Snippet) -> list[str]:
    """The index entries of a snippet. Words are marked with their owner, and anchors also with their own mark. The same
    word of two persons has two entries, so a search never scans rows of others."""
    owner = _mark_of(principal)
    anchors = find_words(snippet.anchors, limit=MAX_SNIPPET_WORDS)
    words = find_words(f"{snippet.anchors}\n{snippet.text}", limit=MAX_SNIPPET_WORDS)
    return [f"{owner}:{word}" for word in words] + [f"{owner}!{word}" for word in anchors]


def build_query_lexemes(principal: Principal, text: str) -> tuple[list[str], list[float]]:
    """The index entries to search for, and their weights."""
    owner = _mark_of(principal)
    words = find_words(text, limit=MAX_QUERY_WORDS)
    lexemes = [f"{owner}:{word}" for word in words] + [f"{owner}!{word}" for word in words]
    return lexemes, [WORD_WEIGHT] * len(words) + [ANCHOR_WEIGHT] * len(words)


def _mark_of(principal: Principal) -> str:
    """Not a secret and not a protection: every search also filters by the principal."""
    return sha256("\x1f".join(principal.owner).encode()).hexdigest()[:10]


async def load_text_blocks(
    transaction: Connection, conversation_id: ConversationId, turn_id: TurnId
) -> tuple[Block, ...]:
    """The blocks with the texts of a turn, without tool calls, results and thinking.

    In order, until their bodies have MAX_INDEXED_BYTES together; the transaction names the principal.
    """
    types = [kind.value for kind in TEXT_TYPES]
    rows = await transaction.fetch(_BLOCKS, conversation_id, turn_id, types, MAX_INDEXED_BYTES)
    return tuple(map(read_block, rows))


def build_vector_text(vector: Vector | None) -> str | None:
    """`[0.1,0.2]`; single precision has seven digits."""
    return None if vector is None else "[" + ",".join(f"{value:.7g}" for value in vector) + "]"


class PostgresSnippetIndex:
    """Needs the worker's role."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim_turns(self, limit: int) -> tuple[IndexJob, ...]:
        async with self._database.connection() as connection:
            return tuple(map(_read_job, await connection.fetch("SELECT * FROM claim_unindexed($1)", limit)))

    async def load_texts(
        self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId
    ) -> tuple[Block, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return await load_text_blocks(transaction, conversation_id, turn_id)

    async def save_snippets(
        self, principal: Principal, job: IndexJob, snippets: Sequence[EmbeddedSnippet], *, encoder: str
    ) -> bool:
        words, vectors = await asyncio.to_thread(_build_columns, principal, snippets)
        async with self._database.transaction(principal) as transaction:
            # The row lock makes an erasure of the conversation wait until the snippets are committed, so that it erases
            # them too.
            if await transaction.execute(_MARK, job.turn_id, job.conversation_id) != "UPDATE 1":
                return False
            await transaction.execute(_CLEAR, job.conversation_id, job.turn_id)
            await transaction.execute(
                _INSERT,
                job.conversation_id,
                principal.tenant,
                principal.project,
                principal.user_id,
                job.turn_id,
                encoder,
                [each.snippet.target.value for each in snippets],
                [each.snippet.ref for each in snippets],
                [replace_nul(each.snippet.text) for each in snippets],
                words,
                vectors,
                [each.snippet.ts for each in snippets],
            )
        return True


def _build_columns(principal: Principal, snippets: Sequence[EmbeddedSnippet]) -> tuple[list[str], list[str | None]]:
    """The words and vectors of snippets in their stored form: about 0.7 ms for each, ten times that for the worst."""
    words = [" ".join(build_lexemes(principal, each.snippet)) for each in snippets]
    return words, [build_vector_text(each.vector) for each in snippets]


def _read_job(row: Row) -> IndexJob:
    return IndexJob(
        principal=Principal(row["tenant"], row["project"], row["user_id"]),
        conversation_id=row["conversation_id"],
        turn_id=row["turn_id"],
        tries=row["tries"],
    )


class PostgresMemorySearch:
    """Works with the roles of worker and ingress, which can call the function. Snippets are read through a function
    with the principal as argument, turns under its policy."""

    def __init__(self, database: Database, *, exact_rows: int = EXACT_ROWS) -> None:
        self._database = database
        self._exact_rows = exact_rows

    async def find_snippets(self, principal: Principal, query: SnippetQuery) -> tuple[FoundSnippet, ...]:
        lexemes, weights = build_query_lexemes(principal, replace_nul(query.text))
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


class PostgresConversationReader:
    """Reads under the principal's policy."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_turn_blocks(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        turn_id: TurnId,
        *,
        after_seq: int = 0,
        max_bytes: int = PAGE_BYTES,
    ) -> BlockPage:
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_PAGE, conversation_id, turn_id, after_seq, max_bytes)
        return BlockPage(tuple(map(read_block, rows)), more=bool(rows) and rows[0]["total"] > len(rows))

    async def load_blocks_before(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        before_seq: int,
        kinds: Collection[BlockType],
        *,
        max_bytes: int = PAGE_BYTES,
    ) -> BlockPage:
        wanted = sorted(kind.value for kind in kinds)
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_BEFORE, conversation_id, before_seq, wanted, max_bytes)
        return BlockPage(tuple(map(read_block, rows)), more=bool(rows) and rows[0]["total"] > len(rows))

    async def try_load_last_block(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        turn_id: TurnId,
        *,
        ref: str | None = None,
        kind: BlockType | None = None,
    ) -> Block | None:
        async with self._database.transaction(principal, readonly=True) as transaction:
            row = await transaction.fetchrow(_LAST, conversation_id, turn_id, ref, kind and kind.value)
        return read_block(row) if row else None

    async def try_load_plan(self, principal: Principal, conversation_id: ConversationId, plan_id: str) -> Block | None:
        async with self._database.transaction(principal, readonly=True) as transaction:
            row = await transaction.fetchrow(_PLAN, conversation_id, f".react.plan.{plan_id}")
        return read_block(row) if row else None
