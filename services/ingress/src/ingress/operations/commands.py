"""The commands of `python -m ingress`: their types, and the commands for migrations and schemas."""

import argparse
import json
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from everturn.core.errors import Invalid
from ingress.app import build_routes
from ingress.openapi.event_schemas import build_event_schemas
from ingress.settings import IngressSettings, MigrationSettings, load_migration_settings

PROGRAM: Final = "ingress"

HELP = "Bring the database up to date; with DATABASE_ADMIN_URL, create its roles and the database itself first."

PrepareServer = Callable[[str, str, str, str], None]
"""Called with the URLs of the administrator, owner, ingress and worker roles. Raises EverturnError."""
MigrateSchema = Callable[[Path], None]
"""Run the migrations of a folder. Raises EverturnError."""


def _no_arguments(_: argparse.ArgumentParser) -> None:
    """Most commands have no arguments."""


@dataclass(frozen=True, slots=True)
class Command:
    """`run` returns the exit status; `add_arguments` declares the command-line arguments."""

    help: str
    run: Callable[[IngressSettings, argparse.Namespace], Coroutine[Any, Any, int]]
    add_arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments


@dataclass(frozen=True, slots=True)
class OfflineCommand:
    """A command that needs no settings of a serving process."""

    help: str
    run: Callable[[argparse.Namespace], int]
    add_arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments


AnyCommand = Command | OfflineCommand


def parse_arguments(
    commands: Mapping[str, AnyCommand], arguments: Sequence[str], *, default: str
) -> tuple[AnyCommand, argparse.Namespace]:
    """The selected command, `default` if none is named, and `program`, the program name in usage and errors.

    `--called-as NAME` before the command sets that name, for programs that start this one. Raises SystemExit with 2.
    """
    program, rest = PROGRAM, arguments
    if len(arguments) > 1 and arguments[0] == "--called-as":
        program, rest = arguments[1], arguments[2:]
    description = f"Without a command: {default}." if program == PROGRAM else None
    parser = argparse.ArgumentParser(prog=program, description=description)
    known = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in commands.items():
        listed = command.help[0].lower() + command.help[1:].removesuffix(".")
        command.add_arguments(known.add_parser(name, help=listed, description=command.help))
    read = parser.parse_args(rest or [default], argparse.Namespace(program=program))
    return commands[read.command], read


def build_migrate_command(prepare: PrepareServer, migrate: MigrateSchema) -> OfflineCommand:
    """Build the command that prepares the server if requested, and then migrates."""

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
    """The URLs of administrator, owner, ingress and worker; None if an operator created roles and database. Raises
    Invalid."""
    if settings.admin_url is None:
        return None
    if settings.ingress_url is None or settings.worker_url is None:
        raise Invalid("DATABASE_ADMIN_URL also needs DATABASE_INGRESS_URL and DATABASE_WORKER_URL: set both.")
    return (
        settings.admin_url.get_secret_value(),
        settings.database_owner_url.get_secret_value(),
        settings.ingress_url.get_secret_value(),
        settings.worker_url.get_secret_value(),
    )


def build_description() -> dict[str, Any]:
    """JSON Schemas by name: `calls` are those of the OpenAPI document; in `events`, `Event` is the schema of one
    line."""
    return {"calls": build_routes().openapi()["components"]["schemas"], "events": build_event_schemas()}


def describe(_: argparse.Namespace) -> int:
    """Exit status 0. The same sources give the same bytes."""
    sys.stdout.write(json.dumps(build_description(), sort_keys=True, separators=(",", ":")) + "\n")
    return 0


DESCRIBE = OfflineCommand(
    "Print the schemas of what clients send and receive, in calls and as events, as JSON.", describe
)
