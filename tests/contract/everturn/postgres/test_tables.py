"""The tables as SQLAlchemy sees them are those that the migrations made."""

import pytest
from sqlalchemy import Table

from everturn.postgres.tables import conversations, feedback, turns
from everturn.testing.database_roles import Roles

TYPES = {
    "TEXT": "text",
    "BOOLEAN": "boolean",
    "BIGINT": "bigint",
    "DATETIME": "timestamp with time zone",
    "DOUBLE": "double precision",
}


@pytest.mark.parametrize("table", [conversations, feedback, turns], ids=lambda table: table.name)
async def test_every_column_is_there_with_its_type(table: Table, roles: Roles) -> None:
    rows = await roles.superuser.fetch(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = $1", table.name
    )

    real = {row["column_name"]: row["data_type"] for row in rows}
    assert {column.name: TYPES[str(column.type)] for column in table.columns}.items() <= real.items()
