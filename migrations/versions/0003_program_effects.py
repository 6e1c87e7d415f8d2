"""What programs of the sandbox called stands in the effect ledger. Run before the deploy that uses it. Forward only."""

from pathlib import Path

import asyncpg
from alembic import op
from sqlalchemy.util import await_only

revision = "0003"
down_revision = "0002"

SQL = Path(__file__).parents[1] / "sql"


def upgrade() -> None:
    op.execute("SELECT 1")  # the adapter begins its transaction with the first statement that goes through it
    driver: asyncpg.Connection = op.get_bind().connection.driver_connection
    await_only(driver.execute((SQL / "0003_program_effects.sql").read_text()))
