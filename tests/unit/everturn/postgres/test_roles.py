"""The statements that make roles and database."""

import pytest

from everturn.postgres.migrating import (
    DISPATCH,
    RolePasswords,
    build_database_statement,
    build_database_statements,
    build_role_statements,
    find_version_problem,
)


def test_no_role_is_powerful_and_the_one_across_tenants_logs_in_by_nothing():
    statements = build_role_statements(RolePasswords("o", "i", "w"))

    assert sum("NOSUPERUSER NOBYPASSRLS" in statement for statement in statements) == 4
    (dispatch,) = [statement for statement in statements if f"ALTER ROLE {DISPATCH} " in statement]
    assert "NOLOGIN" in dispatch
    assert "PASSWORD NULL" in dispatch
    assert statements[-1].endswith("INHERIT FALSE;")


def test_a_password_with_a_quote_stays_a_password():
    text = "\n".join(build_role_statements(RolePasswords("o'; DROP ROLE x; --", "i", "w")))

    assert "PASSWORD 'o''; DROP ROLE x; --'" in text


@pytest.mark.parametrize("name", ["", "Every", 'a"b', "a b", "a;b", "1a", "a" * 64])
def test_a_name_that_would_need_quotes_is_refused(name: str):
    with pytest.raises(ValueError, match="not a valid database name"):
        build_database_statement(name)
    with pytest.raises(ValueError, match="not a valid database name"):
        build_database_statements(name)


@pytest.mark.parametrize(
    ("server", "vector", "problem"),
    [
        (160_000, "0.8.0", ""),
        (180_001, "1.0", ""),
        (160_004, None, ""),
        (150_008, "0.8.1", "This server is Postgres 15. Everturn needs Postgres 16 or later."),
        (160_004, "0.7.4", "has version 0.7.4 here. Everturn needs 0.8 or later. Update pgvector"),
    ],
)
def test_servers_that_are_too_old_are_rejected(server: int, vector: str | None, problem: str):
    found = find_version_problem(server, vector)

    assert problem in found
    assert bool(found) is bool(problem)
