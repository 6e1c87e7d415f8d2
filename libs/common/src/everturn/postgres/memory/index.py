"""The index of snippets in Postgres: claims go through a definer function; a turn's snippets are replaced at once."""

import asyncio
from collections.abc import Sequence

from everturn.model.blocks import Block
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.ports.memory.index import EmbeddedSnippet, IndexJob
from everturn.postgres.database import Database, Row
from everturn.postgres.memory.lexemes import build_lexemes
from everturn.postgres.memory.texts import load_text_blocks
from everturn.postgres.memory.vectors import build_vector_text
from everturn.postgres.rows import storable

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
        words = await asyncio.to_thread(_join_lexemes, principal, snippets)
        async with self._database.transaction(principal) as transaction:
            # The row lock keeps an erasure of the conversation waiting until the snippets are there to be erased too.
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
                [storable(each.snippet.text) for each in snippets],
                words,
                [build_vector_text(each.vector) for each in snippets],
                [each.snippet.ts for each in snippets],
            )
        return True


def _join_lexemes(principal: Principal, snippets: Sequence[EmbeddedSnippet]) -> list[str]:
    """As they are stored: about 0.5 ms for each snippet, ten times that for the worst text."""
    return [" ".join(build_lexemes(principal, each.snippet)) for each in snippets]


def _read_job(row: Row) -> IndexJob:
    return IndexJob(
        principal=Principal(row["tenant"], row["project"], row["user_id"]),
        conversation_id=row["conversation_id"],
        turn_id=row["turn_id"],
        tries=row["tries"],
    )
