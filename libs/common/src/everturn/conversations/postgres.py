"""Conversations in Postgres: create, list, rename, archive, erase."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import LiteralString

from everturn.conversations.model import (
    Conversation,
    ConversationChanges,
    ConversationPage,
    ConversationQuery,
    ConversationState,
    Erasure,
)
from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, is_id
from everturn.core.paging import BadCursor, build_cursor, read_cursor, read_moment
from everturn.postgres.pool import Database, Row

_CURSOR = "conversations"
CONVERSATION_COLUMNS = "id, title, state, bundle_id, archived, created_at, last_activity_at"
"""What `read_conversation` reads."""
_CREATE = f"""
INSERT INTO conversation (id, tenant, project, user_id, title, bundle_id)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING {CONVERSATION_COLUMNS}
"""
LOAD_CONVERSATION = "SELECT * FROM load_conversation($1, $2, $3, $4)"
"""The columns that `read_conversation` reads, and those of the function. It needs no transaction of the principal."""
_SAVE = f"""
UPDATE conversation
   SET title = COALESCE($2, title), archived = COALESCE($3, archived), touched_at = clock_timestamp()
 WHERE id = $1
RETURNING {CONVERSATION_COLUMNS}
"""
_PAGE = f"""
SELECT {CONVERSATION_COLUMNS}
  FROM conversation
 WHERE tenant = $1 AND project = $2 AND user_id = $3 AND archived = $4
   AND ($5::text IS NULL OR title ILIKE $5)
   AND ($6::text IS NULL OR state = $6)
   {{older}}
 ORDER BY last_activity_at DESC, id DESC
 LIMIT $7
"""
_OLDER = "AND (last_activity_at, id) < ($8, $9)"
"""A separate condition, so that the index finds the beginning of the page."""
_TITLES = "SELECT id, title FROM conversation WHERE id = ANY($1)"


class PostgresConversations:
    """The principal's own conversations."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self, principal: Principal, conversation_id: ConversationId, *, title: str, bundle_id: str | None
    ) -> Conversation:
        owner = (principal.tenant, principal.project, principal.user_id)
        async with self._database.transaction(principal) as transaction:
            (row,) = await transaction.fetch(_CREATE, conversation_id, *owner, title, bundle_id)
        return read_conversation(row)

    async def load(self, principal: Principal, conversation_id: ConversationId) -> Conversation:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(LOAD_CONVERSATION, *principal.owner, conversation_id)
        if row is None:
            raise NotFound(conversation_id)
        return read_conversation(row)

    async def load_titles(
        self, principal: Principal, conversation_ids: Collection[ConversationId]
    ) -> Mapping[ConversationId, str]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_TITLES, list(conversation_ids))
        return {ConversationId(row["id"]): row["title"] for row in rows}

    async def load_page(self, principal: Principal, query: ConversationQuery) -> ConversationPage:
        statement, arguments = _build_page_query(principal, query)
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(statement, *arguments)
        page = tuple(read_conversation(row) for row in rows[: query.limit])
        more = len(rows) > query.limit
        return ConversationPage(page, _build_cursor(page[-1]) if more else None)

    async def save(
        self, principal: Principal, conversation_id: ConversationId, changes: ConversationChanges
    ) -> Conversation:
        if changes == ConversationChanges():
            return await self.load(principal, conversation_id)
        async with self._database.transaction(principal) as transaction:
            row = await transaction.fetchrow(_SAVE, conversation_id, changes.title, changes.archived)
        if row is None:
            raise NotFound(conversation_id)
        return read_conversation(row)

    async def erase(self, principal: Principal, conversation_id: ConversationId) -> Erasure:
        async with self._database.transaction(principal) as transaction:
            row = await transaction.fetchrow("SELECT * FROM erase_conversation($1)", conversation_id)
        if row is None:
            raise NotFound(conversation_id)
        return Erasure(dict(zip(row["stores"], row["removed"], strict=True)), tuple(row["object_keys"]))


def _build_page_query(principal: Principal, query: ConversationQuery) -> tuple[LiteralString, tuple[object, ...]]:
    """Asks for one row more than the limit, to know whether there is a next page. The principal is named for the
    index."""
    owner = (principal.tenant, principal.project, principal.user_id)
    pattern = f"%{_escape_pattern(query.search)}%" if query.search else None
    state = None if query.state is None else query.state.value
    arguments = (*owner, query.archived, pattern, state, query.limit + 1)
    if query.cursor is None:
        return _PAGE.format(older=""), arguments
    return _PAGE.format(older=_OLDER), (*arguments, *_read_cursor(query.cursor))


def _escape_pattern(text: str) -> str:
    """The text escaped for LIKE."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _build_cursor(last: Conversation) -> str:
    return build_cursor(_CURSOR, last.last_activity_at.isoformat(), last.id)


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    moment, conversation_id = read_cursor(cursor, _CURSOR, parts=2)
    if not is_id(conversation_id, "conv"):
        raise BadCursor()
    return read_moment(moment), conversation_id


def read_conversation(row: Row) -> Conversation:
    return Conversation(
        id=row["id"],
        title=row["title"],
        state=ConversationState(row["state"]),
        bundle_id=row["bundle_id"],
        archived=row["archived"],
        created_at=row["created_at"],
        last_activity_at=row["last_activity_at"],
    )
