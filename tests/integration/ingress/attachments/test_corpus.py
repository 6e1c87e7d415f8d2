"""Ordinary files are accepted and hostile ones are not, through the intake with its real checkers."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from uploads.corpus import build_files, find_files
from uploads.hostile import BAD_UPLOADS

from everturn.core.identity import Principal
from everturn_testing.core import SequentialIds
from ingress.attachments.antivirus import NoScan
from ingress.attachments.intake import FileCaps, IncomingFile, Intake
from ingress.attachments.structure.checks import open_checks
from ingress.errors import ProblemError
from ingress.metrics import IngressMetrics

MIN_FILES = 500
MAX_FALSE_SHARE = 0.01
ANN = Principal("t", "p", "ann")


@pytest.fixture
async def intake() -> AsyncIterator[Intake]:
    """As an ingress has it, but without an antivirus."""
    nothing: Any = None
    async with open_checks() as checks:
        yield Intake(
            objects=nothing,
            antivirus=NoScan(),
            structure=checks,
            caps=FileCaps(5_000_000, 10_000_000, 10_000_000, 20),
            ids=SequentialIds(),
            metrics=IngressMetrics(),
        )


async def find_refusals(intake: Intake, files: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """The reason for each refused file, by its name; four files are checked at once."""
    slots, said = asyncio.Semaphore(4), dict[str, str]()

    async def check(name: str, data: bytes) -> None:
        async with slots:
            try:
                await intake.check_files(ANN, [IncomingFile(Path(name).name, "", data)])
            except ProblemError as refusal:
                said[name] = str(refusal)

    async with asyncio.TaskGroup() as group:
        for name, data in files:
            group.create_task(check(name, data))
    return said


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_files_of_a_machine_are_accepted(intake: Intake) -> None:
    paths = await asyncio.to_thread(find_files)
    if len(paths) < MIN_FILES and os.environ.get("CI") != "true":
        pytest.skip(f"this machine has {len(paths)} files of packages and the system, fewer than {MIN_FILES}")
    assert len(paths) >= MIN_FILES

    refusals = await find_refusals(intake, ((str(path), path.read_bytes()) for path in paths))

    assert len(refusals) <= MAX_FALSE_SHARE * len(paths), refusals


async def test_files_in_published_formats_are_accepted(intake: Intake, tmp_path: Path) -> None:
    files = await asyncio.to_thread(build_files, tmp_path)

    assert await find_refusals(intake, files.items()) == {}


async def test_hostile_files_are_refused_each_for_a_reason(intake: Intake) -> None:
    refusals = await find_refusals(intake, ((f"{case}/{name}", data) for case, (name, data, _) in BAD_UPLOADS.items()))

    assert {f"{case}/{name}" for case, (name, _, _) in BAD_UPLOADS.items()} - refusals.keys() == set()
