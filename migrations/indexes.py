"""Builds indexes of tables that are in use, without blocking their writers.

`CREATE INDEX` blocks all writers of its table until it has finished. Every migration after the baseline builds an index
of an existing table with `build_index`.
"""

from alembic import op
from sqlalchemy import text

WAIT_LIMIT = "10min"
"""How long the build waits for older transactions to end. Nothing queues behind it, so it may be longer than
LOCK_TIMEOUT of env.py; our services' transactions last some seconds, a backup may last longer."""


def build_index(name: str, definition: str, *, unique: bool = False) -> None:
    """`CREATE INDEX CONCURRENTLY name definition`, outside a transaction. Does nothing if the index exists.

    An interrupted build leaves an INVALID index, which every write maintains and no query uses. It is dropped and built
    again. Whatever the migration did before is committed by then, so all of it must be repeatable.
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
