"""One database with the view of each of the platform's roles."""

from dataclasses import dataclass

from everturn.postgres.pool import Connection, Database


@dataclass(frozen=True, slots=True)
class Roles:
    """`superuser` is a plain connection that bypasses the policies."""

    ingress: Database
    worker: Database
    superuser: Connection
