"""What `python -m ingress` can be told to do: a command is a module of this room, and a line in `__main__.COMMANDS`."""

import argparse
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ingress.settings import IngressSettings

PROGRAM: Final = "ingress"


def _no_arguments(_: argparse.ArgumentParser) -> None:
    """Most commands have none."""


@dataclass(frozen=True, slots=True)
class Command:
    """`run` gives the exit status; `add_arguments` names what the command line of this command may hold."""

    help: str
    run: Callable[[IngressSettings, argparse.Namespace], Coroutine[Any, Any, int]]
    add_arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments


@dataclass(frozen=True, slots=True)
class OfflineCommand:
    """A command that needs none of the settings of a serving process."""

    help: str
    run: Callable[[argparse.Namespace], int]
    add_arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments


AnyCommand = Command | OfflineCommand


def parse_arguments(
    commands: Mapping[str, AnyCommand], arguments: Sequence[str], *, default: str
) -> tuple[AnyCommand, argparse.Namespace]:
    """The command that is meant, `default` where none is named, and `program`, which is how usage and errors call us.

    `--called-as NAME` before the command sets that name, for programs that start us. Raises SystemExit with 2.
    """
    program, rest = PROGRAM, arguments
    if len(arguments) > 1 and arguments[0] == "--called-as":
        program, rest = arguments[1], arguments[2:]
    description = f"Without a command: {default}." if program == PROGRAM else None
    parser = argparse.ArgumentParser(prog=program, description=description)
    known = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in commands.items():
        command.add_arguments(known.add_parser(name, help=command.help, description=command.help))
    read = parser.parse_args(rest or [default], argparse.Namespace(program=program))
    return commands[read.command], read
