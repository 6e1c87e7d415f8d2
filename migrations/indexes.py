"""Builds indexes of tables that are in use, so that writers go on meanwhile.

`CREATE INDEX` stops all writers of its table until it is done. Every migration after 0012 builds an index of a table
that was there before with `build_index`.
"""

from alembic import op
from sqlalchemy import text

WAIT_LIMIT = "10min"
"""For transactions that are older than the build to end. Nobody waits behind it, so it may be longer than LOCK_TIMEOUT
of env.py; our services' transactions last some seconds, a backup may last longer."""


def build_index(name: str, definition: str, *, unique: bool = False) -> None:
    """`CREATE INDEX CONCURRENTLY name definition`, outside of a transaction. Does nothing where the index is there.

    A build that was broken off leaves an INVALID index, which every write keeps up to date and no query uses. It is
    dropped and built again. What the migration did before is committed, so all of it must be repeatable.
    """
    with op.get_context().autocommit_block():
        connection = op.get_bind()
        before = connection.scalar(text("SHOW lock_timeout"))
        connection.execute(text(f"SET lock_timeout = '{WAIT_LIMIT}'"))
        valid = connection.scalar(
            text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"), {"name": name}
        )
        if valid is False:
            connection.execute(text(f"DROP INDEX CONCURRENTLY {name}"))
        if not valid:
            connection.execute(text(f"CREATE {'UNIQUE ' if unique else ''}INDEX CONCURRENTLY {name} {definition}"))
        connection.execute(text(f"SET lock_timeout = '{before}'"))
