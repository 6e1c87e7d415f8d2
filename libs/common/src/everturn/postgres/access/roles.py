"""The statements by which a superuser makes the platform's roles, its database and the extension (decision 0005)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DATABASE: Final = "everturn"
OWNER, INGRESS, WORKER, DISPATCH = "everturn_owner", "everturn_ingress", "everturn_worker", "everturn_dispatch"
POWERLESS: Final = "NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION"
LARGE_OBJECTS: Final = tuple(
    f"pg_catalog.{function}"
    for function in ("lo_creat(int4)", "lo_create(oid)", "lo_from_bytea(oid, bytea)", "lo_open(oid, int4)")
)
"""What makes and opens large objects; the others need one that is open, or are a superuser's."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class RolePasswords:
    """What the three roles that log in are let in by."""

    owner: str
    ingress: str
    worker: str


def build_role_statements(passwords: RolePasswords) -> Sequence[str]:
    """Make the roles that are missing and set rights and passwords of all; may run at every start."""
    logins = {OWNER: passwords.owner, INGRESS: passwords.ingress, WORKER: passwords.worker}
    return (
        *(_build_role_statement(role, login="LOGIN", password=word) for role, word in logins.items()),
        _build_role_statement(DISPATCH, login="NOLOGIN", password=None),
        # The owner's migrations hand functions to the dispatch role and replace them later, by SET ROLE. It must not
        # inherit the role: it would see all tenants' rows through the policies that are made for dispatch.
        f"GRANT {DISPATCH} TO {OWNER} WITH ADMIN FALSE, SET TRUE, INHERIT FALSE;",
    )


def build_database_statement(name: str) -> str:
    """Make the database. Raises ValueError for a name that would need quotes."""
    return f"CREATE DATABASE {check_name(name)} OWNER {OWNER};"


def build_database_statements(name: str) -> Sequence[str]:
    """Within the database: who may come in, and what it needs; may run at every start."""
    return (
        f"REVOKE ALL ON DATABASE {check_name(name)} FROM PUBLIC;",
        f"GRANT CONNECT ON DATABASE {name} TO {INGRESS}, {WORKER};",
        "CREATE EXTENSION IF NOT EXISTS vector;",
        f"GRANT USAGE ON SCHEMA public TO {DISPATCH};",
        # Large objects belong to no table, so no policy holds for them.
        f"REVOKE EXECUTE ON FUNCTION {', '.join(LARGE_OBJECTS)} FROM PUBLIC;",
    )


def check_name(name: str) -> str:
    """Raises ValueError for the name of a database that would need quotes."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for the database: small letters, digits and _ only.")
    return name


def _build_role_statement(role: str, *, login: str, password: str | None) -> str:
    """SQL that creates or corrects a role."""
    secret = "PASSWORD NULL" if password is None else f"PASSWORD {_quote(password)}"
    return (
        f"DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN NULL; END $$;\n"
        f"ALTER ROLE {role} WITH {login} {POWERLESS} {secret};"
    )


def _quote(text: str) -> str:
    """A string of SQL, as standard_conforming_strings has it."""
    return "'" + text.replace("'", "''") + "'"
