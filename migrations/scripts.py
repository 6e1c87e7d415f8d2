"""Runs the files of `sql/`, and creates or replaces functions from `sql/functions/`."""

import re
from collections.abc import Iterable
from pathlib import Path

import asyncpg
from alembic import op
from sqlalchemy.util import await_only

SQL = Path(__file__).parent / "sql"
_BEFORE_FUNCTION = re.compile(r"^(?=CREATE OR REPLACE FUNCTION (\w+))", re.MULTILINE)


def run_script(name: str) -> None:
    """Run `sql/<name>.sql` in the migration's transaction."""
    _run((SQL / f"{name}.sql").read_text())


def save_functions(names: Iterable[str]) -> None:
    """Create or replace these functions with their newest definitions and the rights to call them.

    A SECURITY DEFINER function belongs to everturn_dispatch, which needs CREATE on the schema while it creates one. A
    definition is that of the newest schema, so on a new database a migration may create a function that names columns
    which only a later migration adds. Bodies are not checked for that reason; a test checks them at the head.
    """
    definitions = load_functions()
    op.execute("SET LOCAL check_function_bodies = off")
    op.execute("GRANT CREATE ON SCHEMA public TO everturn_dispatch")
    for name in names:
        definition = definitions[name]
        if "SECURITY DEFINER" in definition:
            op.execute("SET LOCAL ROLE everturn_dispatch")
        _run(definition)
        op.execute("RESET ROLE")
    op.execute("REVOKE CREATE ON SCHEMA public FROM everturn_dispatch")
    op.execute("SET LOCAL check_function_bodies = on")


def load_functions(folder: Path = SQL / "functions") -> dict[str, str]:
    """The functions of all files by name: from CREATE OR REPLACE FUNCTION to before the next, grants included."""
    definitions: dict[str, str] = {}
    for file in sorted(folder.glob("*.sql")):
        _, *parts = _BEFORE_FUNCTION.split(file.read_text())
        for name, definition in zip(parts[::2], parts[1::2], strict=True):
            if name in definitions:
                raise ValueError(f"{file.name} defines {name} again")
            definitions[name] = definition
    return definitions


def _run(statements: str) -> None:
    """The driver accepts many statements only as one simple query, without SQLAlchemy in between."""
    op.execute("SELECT 1")  # the adapter begins its transaction with the first statement that goes through it
    driver: asyncpg.Connection = op.get_bind().connection.driver_connection
    await_only(driver.execute(statements))
