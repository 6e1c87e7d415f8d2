"""Runs the repository's migrations as the database owner, as an operator does: with alembic."""

import subprocess
import sys
from collections.abc import Mapping

from everturn.core.errors import EverturnError
from everturn_local.settings import REPOSITORY

MIGRATION_LIMIT_S = 300.0
ERROR_TAIL_CHARS = 2_000


class MigrationError(EverturnError):
    """The database schema could not be brought up to date."""


def run_migrations(owner_url: str, *, env: Mapping[str, str]) -> None:
    """Update the schema to the newest version. Raises MigrationError with alembic's output."""
    argv = [sys.executable, "-m", "alembic", "-c", str(REPOSITORY / "migrations" / "alembic.ini"), "upgrade", "head"]
    done = subprocess.run(
        argv,
        env={**env, "DATABASE_OWNER_URL": owner_url},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=MIGRATION_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise MigrationError(f"alembic says:\n{(done.stdout + done.stderr).strip()[-ERROR_TAIL_CHARS:]}")
