"""`python -m ingress sweep-objects`: lists stored objects that no row names, and deletes them when asked to."""

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import orjson

from everturn.ports.life.orphans import SweepParts
from ingress.operations.commands import Command
from ingress.resources.sweeping import run_sweep
from ingress.settings import IngressSettings

HELP = "List stored objects older than an hour that no row names, as JSON lines; --delete removes them."

OpenParts = Callable[[IngressSettings], AbstractAsyncContextManager[SweepParts]]


def build_sweep_command(open_parts: OpenParts) -> Command:
    """The command with its drivers."""

    async def run(settings: IngressSettings, arguments: argparse.Namespace) -> int:
        async with open_parts(settings) as parts:
            swept = await run_sweep(parts, prefix=arguments.prefix, delete=arguments.delete, report=write_line)
        write_line(
            {
                "seen": swept.seen,
                "orphans": swept.orphans,
                "orphan_bytes": swept.orphan_bytes,
                "deleted": swept.deleted,
            }
        )
        return 0

    return Command(HELP, run, add_arguments)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--delete", action="store_true", help="delete the objects that no row names")
    parser.add_argument(
        "--prefix", default="", help="only keys with this prefix, such as a conversation's id and a slash"
    )


def write_line(line: dict[str, object]) -> None:
    """One line of JSON."""
    sys.stdout.write(orjson.dumps(line).decode() + "\n")
    sys.stdout.flush()
