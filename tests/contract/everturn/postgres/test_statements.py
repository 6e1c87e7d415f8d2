"""SQLAlchemy writes the SQL, our connection runs it."""

from sqlalchemy import ARRAY, Integer, any_, column, func, literal, select

from everturn.postgres.statements import fetch_row, fetch_rows
from everturn.testing.database_roles import Roles


async def test_parameters_arrive_in_their_order(roles: Roles) -> None:
    statement = select(literal("a").label("one"), literal(2).label("two"), literal("c").label("three"))

    async with roles.worker.connection() as connection:
        row = await fetch_row(connection, statement)

    assert row is not None
    assert dict(row) == {"one": "a", "two": 2, "three": "c"}


async def test_a_list_is_one_parameter(roles: Roles) -> None:
    numbers = func.generate_series(1, 5).table_valued(column("n", Integer)).render_derived()
    statement = select(numbers.c.n).where(numbers.c.n == any_(literal([2, 4, 9], ARRAY(Integer))))

    async with roles.worker.connection() as connection:
        rows = await fetch_rows(connection, statement)

    assert [row["n"] for row in rows] == [2, 4]


async def test_no_row_is_none(roles: Roles) -> None:
    async with roles.worker.connection() as connection:
        assert await fetch_row(connection, select(literal(1)).where(literal(1) == 2)) is None
