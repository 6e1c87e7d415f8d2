"""The roles and databases, on the real server."""

import pytest
from helpers.databases import remove_database, save_database_copy

from everturn_local.home import Secrets
from everturn_local.servers.databases import DatabaseUrls, save_database, save_roles
from everturn_local.servers.postgres import EmbeddedPostgres, SqlError

ROLES = "everturn_dispatch,everturn_ingress,everturn_owner,everturn_worker"


def test_no_platform_role_has_any_power_of_its_own(postgres_server: EmbeddedPostgres):
    powers = "rolsuper OR rolbypassrls OR rolcreatedb OR rolcreaterole OR rolreplication"

    found = postgres_server.run_sql(
        f"SELECT string_agg(rolname, ',' ORDER BY rolname), bool_or({powers}) FROM pg_roles WHERE rolname ~ '^everturn'"
    )

    assert found == f"{ROLES}|f"


def test_only_the_dispatch_role_cannot_log_in(postgres_server: EmbeddedPostgres):
    found = postgres_server.run_sql("SELECT rolname FROM pg_roles WHERE rolname ~ '^everturn' AND NOT rolcanlogin")

    assert found == "everturn_dispatch"


def test_the_owner_can_set_the_dispatch_role_but_has_not_its_rights(postgres_server: EmbeddedPostgres):
    rights = "SELECT pg_has_role('everturn_owner', 'everturn_dispatch', '{}')"

    assert postgres_server.run_sql(rights.format("SET")) == "t"
    assert postgres_server.run_sql(rights.format("USAGE")) == "f"


def test_creating_roles_and_database_again_changes_nothing(postgres_server: EmbeddedPostgres, passwords: Secrets):
    save_database(postgres_server, "created_twice")
    postgres_server.run_sql("CREATE TABLE kept (id int)", database="created_twice")

    save_roles(postgres_server, passwords)
    save_database(postgres_server, "created_twice")

    assert postgres_server.run_sql("SELECT count(*) FROM kept", database="created_twice") == "0"
    remove_database(postgres_server, "created_twice")


def test_the_owner_can_hand_a_function_to_the_dispatch_role_and_replace_it(postgres_server: EmbeddedPostgres):
    save_database(postgres_server, "hand_over")
    create = "CREATE OR REPLACE FUNCTION f() RETURNS int SECURITY DEFINER LANGUAGE sql AS 'SELECT {}';"
    steps = [
        "SET ROLE everturn_owner",
        create.format(1),
        "GRANT CREATE ON SCHEMA public TO everturn_dispatch",
        "ALTER FUNCTION f() OWNER TO everturn_dispatch",
        "SET ROLE everturn_dispatch",
        create.format(2),
        "SET ROLE everturn_owner",
        "REVOKE CREATE ON SCHEMA public FROM everturn_dispatch",
    ]

    postgres_server.run_sql(";\n".join(steps), database="hand_over")

    owner = "SELECT rolname, f() FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner WHERE proname = 'f'"
    assert postgres_server.run_sql(owner, database="hand_over") == "everturn_dispatch|2"
    remove_database(postgres_server, "hand_over")


@pytest.mark.parametrize("role", ["everturn_ingress", "everturn_worker", "everturn_dispatch"])
def test_only_the_owner_creates_tables(postgres_server: EmbeddedPostgres, role: str):
    save_database(postgres_server, "closed")

    with pytest.raises(SqlError, match="permission denied for schema public"):
        postgres_server.run_sql(f"SET ROLE {role}; CREATE TABLE mine (id int)", database="closed")

    remove_database(postgres_server, "closed")


def test_a_copy_has_the_rows_of_its_template_and_goes_away_whole(postgres_server: EmbeddedPostgres):
    save_database(postgres_server, "original")
    postgres_server.run_sql("CREATE TABLE t AS SELECT 7 AS n", database="original")

    save_database_copy(postgres_server, "copied", template="original")

    assert postgres_server.run_sql("SELECT n FROM t", database="copied") == "7"
    for name in ("copied", "original"):
        remove_database(postgres_server, name)
    assert postgres_server.run_sql("SELECT 1 FROM pg_database WHERE datname IN ('copied', 'original')") == ""


def test_each_role_gets_its_own_url(database: DatabaseUrls):
    assert len({database.superuser, database.owner, database.ingress, database.worker}) == 4
    assert database.worker.startswith("postgresql://everturn_worker:")
