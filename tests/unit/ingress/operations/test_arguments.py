"""The arguments of the commands."""

from contextlib import asynccontextmanager
from typing import Any

from ingress.operations.commands import parse_arguments
from ingress.operations.data import build_rescan_command, build_revoke_command


@asynccontextmanager
async def nobody(_: object) -> Any:
    yield None


TABLE = {"rescan": build_rescan_command(nobody), "revoke": build_revoke_command(nobody)}  # type: ignore[arg-type]


def test_a_rescan_may_take_all() -> None:
    assert parse_arguments(TABLE, ["rescan", "--all"], default="rescan")[1].all
    assert not parse_arguments(TABLE, ["rescan"], default="rescan")[1].all


def test_a_revocation_names_a_file_and_a_reason() -> None:
    _, read = parse_arguments(TABLE, ["revoke", "art_1", "--reason", "reported"], default="rescan")

    assert (read.artifact, read.reason) == ("art_1", "reported")
