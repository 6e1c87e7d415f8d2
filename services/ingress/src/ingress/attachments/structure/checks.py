"""The ingress' side of the structure checks: a few checker processes behind a bounded queue."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from everturn.confinement.fork import hide_process
from everturn.core.errors import Unavailable
from ingress.admission.slots import WorkSlots
from ingress.attachments.structure.limits import WALL_S, Form, Sound, Unsound

CHECKER = (sys.executable, "-I", "-m", "ingress.attachments.structure.checker")
PROCESSES, PROCESSES_OF_PERSON = 2, 1
WAITING = 32
"""Files that wait for a checker; one message has at most 20, which are checked one after the other."""
ANSWER_TIMEOUT_S = WALL_S + 10
"""Longer than the checker's own limit: starting it on a busy machine takes time."""
_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
"""The checker inherits nothing of this environment, in particular no passwords."""


class CheckerProcesses:
    """Checks structures in processes of their own, which start on demand; one that is out of sync is replaced."""

    def __init__(self, *, command: tuple[str, ...] = CHECKER, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._command = command
        self._timeout_s = timeout_s
        self._slots = WorkSlots(
            PROCESSES, WAITING, "Too many files are being checked.", at_once_of_person=PROCESSES_OF_PERSON
        )
        self._idle: list[asyncio.subprocess.Process] = []

    async def check(self, form: Form, data: bytes, person: str = "") -> Sound:
        async with self._slots.acquire(person), self._process() as process:
            head, content = await self._request(process, form, data)
        if fault := head["fault"]:
            raise Unsound(fault)
        return Sound(head["charset"], content, head["change"])

    async def check_ready(self) -> None:
        async with self._slots.acquire(), self._process():
            return

    async def close(self) -> None:
        while self._idle:
            await _end(self._idle.pop())

    @asynccontextmanager
    async def _process(self) -> AsyncGenerator[asyncio.subprocess.Process]:
        process = await self._take()
        try:
            yield process
        except BaseException:
            # It may still process this file, and its answer would be read as that to the next one.
            await _end(process)
            raise
        self._idle.append(process)

    async def _take(self) -> asyncio.subprocess.Process:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
        try:
            return await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=_ENVIRONMENT,
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable("The file checker can't be started.") from error

    async def _request(
        self, process: asyncio.subprocess.Process, form: Form, data: bytes
    ) -> tuple[dict[str, Any], bytes]:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("The checker was started without pipes.")
        try:
            async with asyncio.timeout(self._timeout_s):
                process.stdin.write(json.dumps({"form": form, "size": len(data)}).encode() + b"\n")
                process.stdin.write(data)
                await process.stdin.drain()
                line = await process.stdout.readline()
                head = json.loads(line) if line.endswith(b"\n") else {"size": 0}
                content = await process.stdout.readexactly(head["size"])
        except asyncio.IncompleteReadError as error:
            raise Unavailable("The file checks ended.") from error
        except (OSError, TimeoutError) as error:
            raise Unavailable("The file checker does not respond.") from error
        if not line.endswith(b"\n"):
            raise Unavailable("The file checks ended.")
        return head, content


@asynccontextmanager
async def open_checks() -> AsyncGenerator[CheckerProcesses]:
    """Open checks whose processes end with the block. They run as the same user, so first hide this process's
    passwords."""
    hide_process()
    checks = CheckerProcesses()
    try:
        yield checks
    finally:
        await checks.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process with its fork, which may still check a file: they are one process group."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
