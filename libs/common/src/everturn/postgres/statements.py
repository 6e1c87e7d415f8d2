"""Runs SQLAlchemy Core statements on a connection of our pool: SQLAlchemy writes the SQL, asyncpg runs it."""

from collections.abc import Sequence
from typing import cast

from sqlalchemy import ClauseElement
from sqlalchemy.dialects.postgresql.asyncpg import dialect
from sqlalchemy.sql.compiler import SQLCompiler

from everturn.postgres.database import Connection, Row

_DIALECT = dialect()


async def fetch_rows(connection: Connection, statement: ClauseElement) -> Sequence[Row]:
    """All rows. Lists are passed as arrays (`= ANY`), because an IN list would be a new statement for every length."""
    compiled = cast(SQLCompiler, statement.compile(dialect=_DIALECT))
    order: Sequence[str] = compiled.positiontup or ()
    return await connection.fetch(str(compiled), *(compiled.params[name] for name in order))


async def fetch_row(connection: Connection, statement: ClauseElement) -> Row | None:
    rows = await fetch_rows(connection, statement)
    return rows[0] if rows else None
