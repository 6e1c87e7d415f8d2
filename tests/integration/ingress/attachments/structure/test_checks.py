"""Checker processes: few, replaced when they end, stopped at the end, and without our settings."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from uploads.office import office
from uploads.pdfs import pdf

from everturn.confinement.processes import ConfinedProcesses
from everturn.core.errors import Unavailable
from ingress.attachments.structure.checks import CHECKER, PROCESSES, StructureChecks, open_checks
from ingress.attachments.structure.limits import LIMITS, Sound, Unsound


@pytest.fixture
async def checks() -> AsyncIterator[StructureChecks]:
    async with open_checks() as opened:
        yield opened
    assert children() == []


def children() -> list[int]:
    """Checker processes of this one, which has servers of other tests as well."""
    processes = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    return [process for process in processes if _is_checker(process)]


def _is_checker(process: int) -> bool:
    # /proc/self/task/*/children leaves processes out while others begin or end.
    folder = Path(f"/proc/{process}")
    try:
        parent = folder.joinpath("stat").read_text().rpartition(")")[2].split()[1]
        return parent == str(os.getpid()) and CHECKER[-1].encode() in folder.joinpath("cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended since it was listed


def environment_of(process: int) -> str:
    return Path(f"/proc/{process}/environ").read_text()


async def test_files_are_looked_into_side_by_side_in_few_processes(checks: StructureChecks) -> None:
    found = await asyncio.gather(
        *(checks.check("pdf", pdf(pages=pages)) for pages in (1, 501, 3, 502, 500)),
        *(checks.check("docx", office()) for _ in range(5)),
        return_exceptions=True,
    )

    assert [type(one) for one in found] == [Sound, Unsound, Sound, Unsound, *[Sound] * 6]
    assert len(children()) <= PROCESSES


async def test_a_checker_that_ended_is_replaced(checks: StructureChecks) -> None:
    await checks.check("pdf", pdf())  # a process that has just been started may not show its arguments yet
    (first,) = children()

    os.kill(first, signal.SIGKILL)
    outcomes = [await outcome(checks) for _ in range(2)]

    assert outcomes[1] is None
    assert first not in children()


async def outcome(checks: StructureChecks) -> str | None:
    try:
        await checks.check("pdf", pdf())
        return None
    except Unavailable as error:
        return str(error)


async def test_a_checker_whose_question_was_given_up_answers_no_other(checks: StructureChecks) -> None:
    await checks.check("pdf", pdf())  # a process that has just been started may not show its arguments yet
    (first,) = children()
    os.kill(first, signal.SIGSTOP)

    asked = asyncio.create_task(checks.check("pdf", pdf(pages=501)))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await checks.check("pdf", pdf())

    assert first not in children()


async def test_a_checker_that_does_not_answer_or_start_is_unavailable() -> None:
    waits = (sys.executable, "-c", "import sys; sys.stdin.read()", CHECKER[-1])
    limits = replace(LIMITS, wall_s=0.0)
    for command in (waits, ("/nowhere",), ("/bin/true",)):
        processes = ConfinedProcesses(command, processes=1, limits=limits, purpose="checks files", starting_s=0.5)
        with pytest.raises(Unavailable, match="The process that checks files"):
            await StructureChecks(processes).check("pdf", pdf())
        await processes.close()
    assert children() == []


async def test_a_checker_knows_none_of_our_settings(checks: StructureChecks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")

    await checks.check("pdf", pdf())

    (child,) = children()
    assert "secret" not in environment_of(child)
