"""Runs the files of `sql/`, and creates or replaces functions from `sql/functions/`."""

from collections.abc import Iterable
from pathlib import Path

import asyncpg
from alembic import op
from sqlalchemy.util import await_only

SQL = Path(__file__).parent / "sql"


def run_script(name: str) -> None:
    """Run `sql/<name>.sql` in the migration's transaction."""
    _run((SQL / f"{name}.sql").read_text())


def save_functions(names: Iterable[str]) -> None:
    """Create or replace these functions from `sql/functions/<name>.sql`, with the rights to call them.

    A SECURITY DEFINER function belongs to everturn_dispatch, which needs CREATE on the schema while it creates one. A
    file describes the function of the newest schema, so on a new database a migration may create a function that names
    columns which only a later migration adds. Bodies are not checked for that reason; a test checks them at the head.
    """
    op.execute("SET LOCAL check_function_bodies = off")
    op.execute("GRANT CREATE ON SCHEMA public TO everturn_dispatch")
    for name in names:
        source = (SQL / "functions" / f"{name}.sql").read_text()
        if "SECURITY DEFINER" in source:
            op.execute("SET LOCAL ROLE everturn_dispatch")
        _run(source)
        op.execute("RESET ROLE")
    op.execute("REVOKE CREATE ON SCHEMA public FROM everturn_dispatch")
    op.execute("SET LOCAL check_function_bodies = on")


def _run(statements: str) -> None:
    """The driver accepts many statements only as one simple query, without SQLAlchemy in between."""
    op.execute("SELECT 1")  # the adapter begins its transaction with the first statement that goes through it
    driver: asyncpg.Connection = op.get_bind().connection.driver_connection
    await_only(driver.execute(statements))
