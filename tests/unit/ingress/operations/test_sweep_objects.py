"""The command that sweeps objects: a line for each orphan, and one for all."""

import argparse
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from everturn.lifecycle.orphans import SweepParts
from everturn_testing.core import FixedClock
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.files.objects_contract import key_of
from ingress.operations.data import build_sweep_command


class NoRows:
    """Knows no key."""

    async def load_orphans(self, keys: Sequence[str]) -> tuple[str, ...]:
        return tuple(keys)


@pytest.mark.parametrize(("options", "deleted"), [([], 0), (["--delete"], 1)])
async def test_the_command_writes_a_line_for_each_and_one_for_all(
    capsys: pytest.CaptureFixture[str], options: list[str], deleted: int
) -> None:
    objects = MemoryObjects()
    objects.stored[key_of(b"old")] = b"old"
    objects.modified_at = FixedClock().now() - timedelta(hours=2)

    @asynccontextmanager
    async def open_parts(_: object) -> AsyncIterator[SweepParts]:
        yield SweepParts(objects, NoRows().load_orphans, FixedClock())

    command = build_sweep_command(open_parts)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    settings: Any = None

    status = await command.run(settings, parser.parse_args(options))

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert status == 0
    assert (lines[0]["key"], lines[0]["deleted"]) == (key_of(b"old"), bool(deleted))
    assert lines[-1] == {"seen": 1, "orphans": 1, "orphan_bytes": 3, "deleted": deleted}
