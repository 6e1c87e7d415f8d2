"""One database as each of the platform's roles sees it."""

from dataclasses import dataclass

from everturn.postgres.pool import Connection, Database


@dataclass(frozen=True, slots=True)
class Roles:
    """`superuser` is a bare connection for looking behind the policies."""

    ingress: Database
    worker: Database
    superuser: Connection
