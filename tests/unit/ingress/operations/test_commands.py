"""The command line of the ingress is read by a table."""

import argparse

import pytest

from ingress.operations.commands import Command, parse_arguments
from ingress.settings import IngressSettings


async def run(_: IngressSettings, __: argparse.Namespace) -> int:
    return 0


def add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")


TABLE = {"serve": Command("Serves.", run), "greet": Command("Greets somebody.", run, add_name)}


def test_without_a_command_the_default_is_meant() -> None:
    command, _ = parse_arguments(TABLE, [], default="serve")

    assert command is TABLE["serve"]


def test_a_command_gets_its_arguments() -> None:
    command, read = parse_arguments(TABLE, ["greet", "ann"], default="serve")

    assert command is TABLE["greet"]
    assert read.name == "ann"


@pytest.mark.parametrize("arguments", [["dance"], ["greet"], ["serve", "ann"], ["--greet"]])
def test_what_can_not_be_read_ends_with_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(TABLE, arguments, default="serve")

    assert ended.value.code == 2
