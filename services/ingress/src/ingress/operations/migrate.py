"""`python -m ingress migrate FOLDER`: brings the database up to date; a superuser's address makes it and its roles."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from everturn.errors import Invalid
from ingress.operations.commands import OfflineCommand
from ingress.operations.settings import MigrationSettings, load_migration_settings

HELP = "Bring the database up to date; with DATABASE_ADMIN_URL, create its roles and the database itself first."

PrepareServer = Callable[[str, str, str, str], None]
"""With the addresses of a superuser and of the roles owner, ingress and worker. Raises EverturnError."""
MigrateSchema = Callable[[Path], None]
"""Run the migrations of a folder. Raises EverturnError."""


def build_migrate_command(prepare: PrepareServer, migrate: MigrateSchema) -> OfflineCommand:
    """The command that does the one where it is asked to, and then the other."""

    def run(arguments: argparse.Namespace) -> int:
        if addresses := build_addresses(load_migration_settings()):
            prepare(*addresses)
        migrate(arguments.folder)
        sys.stdout.write("The database is up to date.\n")
        return 0

    return OfflineCommand(HELP, run, add_arguments)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="folder of the migrations: migrations/ of the repository")


def build_addresses(settings: MigrationSettings) -> tuple[str, str, str, str] | None:
    """Of superuser, owner, ingress, worker; None where an operator has made roles and database. Raises Invalid."""
    if settings.admin_url is None:
        return None
    if settings.ingress_url is None or settings.worker_url is None:
        raise Invalid("With DATABASE_ADMIN_URL set DATABASE_INGRESS_URL and DATABASE_WORKER_URL as well.")
    return (
        settings.admin_url.get_secret_value(),
        settings.database_owner_url.get_secret_value(),
        settings.ingress_url.get_secret_value(),
        settings.worker_url.get_secret_value(),
    )
