"""The ingress' side of the structure checks: a few checker processes behind a bounded queue."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from everturn.confinement.fork import ForkResult, hide_process
from everturn.confinement.processes import ConfinedProcesses
from everturn.core.work_slots import WorkSlots
from ingress.attachments.structure.limits import LIMITS, MAX_FAULT_CHARS, MAX_LINE_BYTES, Form, Sound, Unsound

CHECKER = (sys.executable, "-I", "-m", "ingress.attachments.structure.checker")
PROCESSES, PROCESSES_OF_PERSON = 2, 1
WAITING = 32
"""Files that wait for a checker; one message has at most 20, which are checked one after the other."""
UNREADABLE = "its content can't be read"


class StructureChecks:
    """Checks the structure of files in confined processes."""

    def __init__(self, processes: ConfinedProcesses) -> None:
        self._processes = processes
        self._slots = WorkSlots(
            PROCESSES, WAITING, "Too many files are being checked.", at_once_of_owner=PROCESSES_OF_PERSON
        )

    async def check(self, form: Form, data: bytes, person: str = "") -> Sound:
        """Raises Unsound, Unavailable, and a 503 problem when too many files wait."""
        async with self._slots.acquire(person):
            return read_answer(await self._processes.request({"form": form}, data))

    async def check_ready(self) -> None:
        """Raise Unavailable when no checker can be started."""
        async with self._slots.acquire():
            await self._processes.check_ready()


@asynccontextmanager
async def open_checks() -> AsyncGenerator[StructureChecks]:
    """Open checks whose processes end with the block. They run as the same user, so first hide this process's
    passwords."""
    hide_process()
    processes = ConfinedProcesses(CHECKER, processes=PROCESSES, limits=LIMITS, purpose="checks files")
    try:
        yield StructureChecks(processes)
    finally:
        await processes.close()


def read_answer(result: ForkResult) -> Sound:
    """Raises Unsound for a file that is not sound, or whose check reached a limit. A fork that a malicious file
    controls can answer anything."""
    if result.ended == "time":
        raise Unsound(f"checking it takes more than {LIMITS.cpu_s:g} s")
    end = result.answer.find(b"\n", 0, MAX_LINE_BYTES)
    try:
        head = json.loads(result.answer[: max(end, 0)])
        fault, charset, change = head["fault"], head["charset"], head["change"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unsound(UNREADABLE) from error
    if not (isinstance(fault, str) and isinstance(charset, str) and isinstance(change, str)):
        raise Unsound(UNREADABLE)
    if fault:
        raise Unsound(fault[:MAX_FAULT_CHARS])
    return Sound(charset, result.answer[end + 1 :], change)
