"""The statements of a fork name every column of the rows they copy, so that a new column is not forgotten."""

import re

import pytest

from everturn.lifecycle import postgres_forks as sql
from everturn_testing.database_roles import Roles

NOT_COPIED = {
    "turn": {
        "attempt",
        "doorbell_at",
        "rings",
        "rung_at",
        "indexed_at",
        "index_due_at",
        "index_tries",
        "leased_s",
        "usage",
    },
    "artifact": set(),
    "signal": set(),
}
"""What belongs to the work on a turn, and begins anew."""


@pytest.mark.parametrize(
    ("table", "statement"),
    [("turn", sql.COPY_TURN), ("artifact", sql.COPY_ARTIFACTS), ("signal", sql.COPY_SIGNAL)],
)
async def test_every_column_is_copied_or_begins_anew(roles: Roles, table: str, statement: str) -> None:
    columns = await roles.superuser.fetch(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'public' AND table_name = $1", table
    )
    match = re.search(r"INSERT INTO \w+ \((.*?)\)", statement, re.DOTALL)
    assert match is not None

    named = {name.strip() for name in match[1].split(",")}

    assert named | NOT_COPIED[table] == {row["column_name"] for row in columns}
