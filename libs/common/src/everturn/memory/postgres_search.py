"""The snippet index in Postgres and its search, by words and by meaning; claims use a definer function, and a turn's
snippets are replaced in one transaction."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from hashlib import sha256

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.threads import call_sized
from everturn.memory.embedder import Vector
from everturn.memory.search import (
    ALL_TARGETS,
    MAX_CATALOG_CHARS,
    MAX_CATALOG_TEXTS,
    MAX_INDEXED_BYTES,
    ONE_OF_TURN,
    TARGET_OF,
    CatalogPage,
    CatalogQuery,
    CatalogText,
    CatalogTurn,
    EmbeddedSnippet,
    FoundSnippet,
    IndexJob,
    Scope,
    Snippet,
    SnippetQuery,
    SnippetTarget,
    choose_texts,
    describe_attachment,
)
from everturn.memory.words import find_words
from everturn.postgres.pool import Connection, Database, Row, replace_nul
from everturn.timeline.blocks import AttachmentBody, Block, BlockType, parse_body
from everturn.turns.postgres_rows import BLOCK_COLUMNS, END_SEQ, read_blocks

MAX_SNIPPET_WORDS = 250
MAX_QUERY_WORDS = 16
WORD_WEIGHT = 1.0
ANCHOR_WEIGHT = 3.0
"""A word among the anchors counts four times in total, because it is also a word of the snippet."""

_BLOCKS = f"SELECT {BLOCK_COLUMNS} FROM load_indexed_blocks($1, $2, $3, $4, $5, $6, $7)"
_SAVE = "SELECT save_snippets($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"

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
_TURNS = f"""
SELECT id, conversation_id, ordinal, created_at, first_seq, {END_SEQ} AS end_seq
  FROM turn t
 WHERE tenant = $1 AND project = $2 AND user_id = $3 AND ($4::text IS NULL OR conversation_id = $4)
   AND id IS DISTINCT FROM $5
   AND created_at >= COALESCE($6::timestamptz, '-infinity') AND created_at < COALESCE($7::timestamptz, 'infinity')
 ORDER BY created_at, id OFFSET $8 LIMIT $9
"""
_TURNS_NEWEST_FIRST = _TURNS.replace("created_at, id OFFSET", "created_at DESC, id DESC OFFSET")
# Reads the partial index of unindexed turns, which is as long as the indexer's backlog.
_UNINDEXED = """
SELECT count(*) FROM turn
 WHERE indexed_at IS NULL AND status IN ('completed', 'failed', 'cancelled')
   AND tenant = $1 AND project = $2 AND user_id = $3 AND ($4::text IS NULL OR conversation_id = $4)
   AND id IS DISTINCT FROM $5
"""
# Of a text only its beginning leaves the database. The body is canonical JSON, in which `text` is the last key, and
# quotes inside texts are escaped: so the last `"text":"` is that of the body, not one inside an event's payload.
_TEXTS = """
SELECT part.id, said.seq, said.type, said.ref, said.ts,
       CASE WHEN said.type = 'user.attachment.meta' THEN said.body
            ELSE left(right(said.body, NULLIF(position('":"txet"' IN reverse(said.body)), 0) - 1), $7) END AS begun
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS part (id, conversation_id, first_seq, end_seq)
 CROSS JOIN LATERAL (SELECT b.*, row_number() OVER (PARTITION BY b.type ORDER BY b.seq DESC) AS from_last,
                            row_number() OVER (PARTITION BY b.type = ANY ($6) ORDER BY b.seq) AS from_first
                       FROM block b
                      WHERE b.conversation_id = part.conversation_id AND b.seq >= part.first_seq
                        AND b.seq < part.end_seq AND b.turn_id = part.id AND b.type = ANY ($5)) AS said
 WHERE CASE WHEN said.type = ANY ($6) THEN said.from_last = 1 ELSE said.from_first <= $8 END
 ORDER BY said.seq
"""
_ESCAPE_CHARS = 6
"""The longest spelling of a character in a body."""
_BEGUN = re.compile(r'(?:[^"\\]+|\\u[0-9a-f]{4}|\\[^u])*')
"""What is complete of a JSON text that is cut off."""


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
        where = (*principal.owner, conversation_id, turn_id)
        async with self._database.connection() as connection:
            rows = await connection.fetch(_BLOCKS, *where, _types_of(ALL_TARGETS), MAX_INDEXED_BYTES)
        return await read_blocks(rows)

    async def save_snippets(
        self, principal: Principal, job: IndexJob, snippets: Sequence[EmbeddedSnippet], *, encoder: str
    ) -> bool:
        words, vectors = await asyncio.to_thread(_build_columns, principal, snippets)
        async with self._database.connection() as connection:
            return await connection.fetchval(
                _SAVE,
                *principal.owner,
                job.conversation_id,
                job.turn_id,
                encoder,
                [each.snippet.target.value for each in snippets],
                [each.snippet.ref for each in snippets],
                [replace_nul(each.snippet.text) for each in snippets],
                words,
                vectors,
                [each.snippet.ts for each in snippets],
            )


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
            turns = await transaction.fetch(page, *where, query.skip, query.limit)
            texts = await _load_texts(transaction, turns, query.targets)
        size = sum(len(row["begun"] or "") for row in texts)
        return CatalogPage(await call_sized(size, lambda: _read_turns(turns, texts, query.targets)), int(total))

    async def count_unindexed(self, principal: Principal, scope: Scope) -> int:
        async with self._database.transaction(principal, readonly=True) as transaction:
            count = await transaction.fetchval(_UNINDEXED, *principal.owner, scope.conversation_id, scope.except_turn)
        return int(count)


async def _load_texts(
    transaction: Connection, turns: Sequence[Row], targets: frozenset[SnippetTarget]
) -> Sequence[Row]:
    begun = [row for row in turns if row["first_seq"] is not None]
    parts = [[row[column] for row in begun] for column in ("id", "conversation_id", "first_seq", "end_seq")]
    # The prompt in addition: it is shown of a turn that has none of the targets.
    types = [*_types_of(targets), BlockType.USER_PROMPT.value]
    chars = MAX_CATALOG_CHARS * _ESCAPE_CHARS
    return await transaction.fetch(_TEXTS, *parts, types, _types_of(ONE_OF_TURN), chars, MAX_CATALOG_TEXTS + 1)


def _types_of(targets: Collection[SnippetTarget]) -> list[str]:
    return [kind.value for kind, target in TARGET_OF.items() if target in targets]


def _read_turns(
    turns: Sequence[Row], texts: Sequence[Row], targets: frozenset[SnippetTarget]
) -> tuple[CatalogTurn, ...]:
    said: defaultdict[str, list[CatalogText]] = defaultdict(list)
    for row in texts:
        kind = BlockType(row["type"])
        said[row["id"]].append(CatalogText(TARGET_OF[kind], row["ref"], _read_text(kind, row["begun"]), row["ts"]))
    return tuple(
        CatalogTurn(
            ConversationId(row["conversation_id"]),
            TurnId(row["id"]),
            row["ordinal"],
            row["created_at"],
            choose_texts(said[row["id"]], targets),
        )
        for row in turns
    )


def _read_text(kind: BlockType, begun: str | None) -> str:
    """The text of a block, from its whole body or the beginning of its text as JSON; empty if it has none."""
    if begun is None:
        return ""
    if kind is BlockType.ATTACHMENT_META:
        body = parse_body(kind, begun)
        return describe_attachment(body.artifact) if isinstance(body, AttachmentBody) else ""
    complete = _BEGUN.match(begun)
    return str(json.loads(f'"{complete[0]}"'))[:MAX_CATALOG_CHARS] if complete else ""


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
