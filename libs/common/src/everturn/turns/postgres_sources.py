"""Sources in Postgres: those of a conversation without their texts, one full text, and the changes of a commit."""

from collections.abc import Sequence

from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.postgres.pool import Connection, Row
from everturn.timeline.sources import Source, SourceChange

_ROWS = """
SELECT sid, title, url, source_type, objective_relevance, published_time_iso, favicon_url, snippet, mime, text_chars,
       used, key
  FROM source WHERE conversation_id = $1 ORDER BY sid
"""
_SAVE = """
INSERT INTO source (conversation_id, tenant, project, user_id, sid, title, url, source_type, objective_relevance,
                    published_time_iso, favicon_url, snippet, mime, text_chars, used, key, text)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, COALESCE($17, ''))
ON CONFLICT (conversation_id, sid) DO UPDATE
   SET title = EXCLUDED.title, objective_relevance = EXCLUDED.objective_relevance,
       published_time_iso = EXCLUDED.published_time_iso, favicon_url = EXCLUDED.favicon_url,
       snippet = EXCLUDED.snippet, mime = EXCLUDED.mime, text_chars = EXCLUDED.text_chars, used = EXCLUDED.used,
       text = COALESCE($17, source.text)
"""


async def load_sources(transaction: Connection, conversation_id: ConversationId) -> tuple[Source, ...]:
    """All rows by number, without their full texts."""
    return tuple(_read(row) for row in await transaction.fetch(_ROWS, conversation_id))


async def load_source_text(transaction: Connection, conversation_id: ConversationId, sid: int) -> str:
    """One full text. Raises NotFound."""
    text = await transaction.fetchval(
        "SELECT text FROM source WHERE conversation_id = $1 AND sid = $2", conversation_id, sid
    )
    if text is None:
        raise NotFound(f"source {sid}")
    return str(text)


async def save_sources(
    transaction: Connection, principal: Principal, conversation_id: ConversationId, changes: Sequence[SourceChange]
) -> None:
    """Insert new rows and update known ones; the open transaction has checked the fence."""
    owner = (conversation_id, *principal.owner)
    if changes:
        await transaction.executemany(_SAVE, [owner + _columns(change) for change in changes])


def _read(row: Row) -> Source:
    return Source(
        sid=row["sid"],
        title=row["title"],
        url=row["url"],
        source_type=row["source_type"],
        objective_relevance=row["objective_relevance"],
        published_time_iso=row["published_time_iso"],
        favicon_url=row["favicon_url"],
        text=row["snippet"],
        mime=row["mime"],
        text_chars=row["text_chars"],
        used=row["used"],
        key=row["key"],
    )


def _columns(change: SourceChange) -> tuple[object, ...]:
    """In the order of _SAVE."""
    row = change.row
    return (
        row.sid,
        row.title,
        row.url,
        row.source_type,
        row.objective_relevance,
        row.published_time_iso,
        row.favicon_url,
        row.text,
        row.mime,
        row.text_chars,
        row.used,
        row.key,
        change.text,
    )
