"""Conversations in Postgres: create, list, rename, archive, erase."""

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Select, func, insert, literal, select, tuple_, update

from everturn.errors import NotFound
from everturn.model.conversations import Conversation
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, is_id
from everturn.ports.conversations import ConversationPage, ConversationQuery, Erasure
from everturn.postgres.database import Database
from everturn.postgres.rows import read_conversation
from everturn.postgres.statements import fetch_row, fetch_rows
from everturn.postgres.tables import conversations as table
from everturn.wire.cursors import BadCursor, build_cursor, read_cursor, read_moment

_COLUMNS = (
    table.c.id,
    table.c.title,
    table.c.state,
    table.c.bundle_id,
    table.c.archived,
    table.c.created_at,
    table.c.last_activity_at,
)
_CURSOR = "conversations"
_TITLES = "SELECT id, title FROM conversation WHERE id = ANY($1)"


class PostgresConversations:
    """The principal's own conversations."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self, principal: Principal, conversation_id: ConversationId, *, title: str, bundle_id: str | None
    ) -> Conversation:
        statement = insert(table).values(
            id=conversation_id,
            tenant=principal.tenant,
            project=principal.project,
            user_id=principal.user_id,
            title=title,
            bundle_id=bundle_id,
        )
        async with self._database.transaction(principal) as transaction:
            (row,) = await fetch_rows(transaction, statement.returning(*_COLUMNS))
        return read_conversation(row)

    async def load(self, principal: Principal, conversation_id: ConversationId) -> Conversation:
        async with self._database.transaction(principal, readonly=True) as transaction:
            row = await fetch_row(transaction, select(*_COLUMNS).where(table.c.id == conversation_id))
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
        statement = _build_page_query(principal, query)
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await fetch_rows(transaction, statement)
        page = tuple(read_conversation(row) for row in rows[: query.limit])
        more = len(rows) > query.limit
        return ConversationPage(page, _build_cursor(page[-1]) if more else None)

    async def save(
        self, principal: Principal, conversation_id: ConversationId, *, title: str | None, archived: bool | None
    ) -> Conversation:
        asked = {"title": title, "archived": archived}
        changes = {name: value for name, value in asked.items() if value is not None}
        if not changes:
            return await self.load(principal, conversation_id)
        touched = {**changes, "touched_at": func.clock_timestamp()}
        statement = update(table).where(table.c.id == conversation_id).values(touched)
        async with self._database.transaction(principal) as transaction:
            row = await fetch_row(transaction, statement.returning(*_COLUMNS))
        if row is None:
            raise NotFound(conversation_id)
        return read_conversation(row)

    async def erase(self, principal: Principal, conversation_id: ConversationId) -> Erasure:
        async with self._database.transaction(principal) as transaction:
            row = await transaction.fetchrow("SELECT * FROM erase_conversation($1)", conversation_id)
        if row is None:
            raise NotFound(conversation_id)
        return Erasure(dict(zip(row["stores"], row["removed"], strict=True)), tuple(row["object_keys"]))


def _build_page_query(principal: Principal, query: ConversationQuery) -> Select[*tuple[object, ...]]:
    """One row more than asked tells whether there is a next page. The principal is named for the index's sake."""
    newest = (table.c.last_activity_at, table.c.id)
    statement = select(*_COLUMNS).where(
        table.c.tenant == principal.tenant,
        table.c.project == principal.project,
        table.c.user_id == principal.user_id,
        table.c.archived == query.archived,
    )
    if query.cursor is not None:
        at, after_id = _read_cursor(query.cursor)
        statement = statement.where(tuple_(*newest) < tuple_(literal(at, table.c.last_activity_at.type), after_id))
    if query.search:
        statement = statement.where(table.c.title.icontains(query.search, autoescape=True))
    if query.state is not None:
        statement = statement.where(table.c.state == query.state.value)
    return statement.order_by(*(column.desc() for column in newest)).limit(query.limit + 1)


def _build_cursor(last: Conversation) -> str:
    return build_cursor(_CURSOR, last.last_activity_at.isoformat(), last.id)


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    moment, conversation_id = read_cursor(cursor, _CURSOR, parts=2)
    if not is_id(conversation_id, "conv"):
        raise BadCursor()
    return read_moment(moment), conversation_id
