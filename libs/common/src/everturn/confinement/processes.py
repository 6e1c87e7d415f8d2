"""Processes that handle requests with untrusted bytes, each in a fork: both ends of the pipe between them and us.

A request is a JSON line with `size` and other fields, then that many bytes. An answer is a JSON line with `ended` and
`size`, then that many bytes.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, BinaryIO

from everturn.confinement.fork import ForkLimits, ForkResult, run_confined
from everturn.core.errors import Unavailable
from everturn.core.subprocesses import kill_group, wait_for_start
from everturn.core.transports import CheckedWriter

_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
"""The processes inherit no variables of ours, least of all passwords."""
STARTING_S = 30.0
"""Time for loading the libraries on a busy machine, in addition to the limits of a request."""


class ConfinedProcesses:
    """At most `processes` of them; more requests wait. They start on demand; one that failed during a request is
    replaced, and all end when there was no request for `idle_s`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        processes: int,
        limits: ForkLimits,
        purpose: str,
        starting_s: float = STARTING_S,
        idle_s: float | None = None,
    ) -> None:
        """`purpose` completes "The process that ..." in errors."""
        self._command = command
        self._purpose = purpose
        self._free = asyncio.Semaphore(processes)
        self._answer_bytes = limits.answer_bytes
        self._timeout_s = limits.wall_s + starting_s
        self._idle: list[asyncio.subprocess.Process] = []
        self._idle_s = idle_s
        self._ending: asyncio.TimerHandle | None = None
        self._ends: set[asyncio.Task[None]] = set()

    async def request(self, fields: Mapping[str, Any], data: bytes) -> ForkResult:
        """Raises Unavailable when no process answers."""
        async with self._free, self._process() as process:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._exchange(process, fields, data)
            except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as error:
                raise Unavailable(f"The process that {self._purpose} does not respond.") from error

    async def check_ready(self) -> None:
        """Raise Unavailable when no process can be started."""
        async with self._free, self._process():
            return

    async def close(self) -> None:
        self._keep()
        while self._idle:
            await kill_group(self._idle.pop())
        if self._ends:
            await asyncio.wait(self._ends)

    def _keep(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def _end_later(self) -> None:
        self._keep()
        if self._idle_s is not None:
            self._ending = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)

    def _end_idle(self) -> None:
        while self._idle:
            ending = asyncio.create_task(kill_group(self._idle.pop()))
            self._ends.add(ending)
            ending.add_done_callback(self._ends.discard)

    async def _exchange(
        self, process: asyncio.subprocess.Process, fields: Mapping[str, Any], data: bytes
    ) -> ForkResult:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("The process was started without pipes.")
        requests = CheckedWriter(process.stdin)
        requests.write(json.dumps({**fields, "size": len(data)}).encode() + b"\n")
        requests.write(data)
        await requests.drain()
        head: dict[str, Any] = json.loads(await process.stdout.readline())
        if head["size"] > self._answer_bytes:
            raise ValueError("the answer is too long")
        return ForkResult(head["ended"], await process.stdout.readexactly(head["size"]))

    @asynccontextmanager
    async def _process(self) -> AsyncGenerator[asyncio.subprocess.Process]:
        self._keep()
        process = await self._take()
        try:
            yield process
        except BaseException:
            # It may still be busy with this request, and its answer would be mistaken for that to the next one.
            await kill_group(process)
            raise
        self._idle.append(process)
        self._end_later()

    async def _take(self) -> asyncio.subprocess.Process:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
        try:
            return await wait_for_start(
                asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    env=_ENVIRONMENT,
                    start_new_session=True,
                ),
                kill_group,
            )
        except OSError as error:
            raise Unavailable(f"The process that {self._purpose} could not be started.") from error


def run_answering(
    requests: BinaryIO, answers: BinaryIO, work: Callable[[Mapping[str, Any], bytes], bytes], limits: ForkLimits
) -> None:
    """The other end: answer requests until there are no more."""
    while line := requests.readline():
        fields = json.loads(line)
        data = requests.read(fields["size"])
        result = _run(work, fields, data, limits)
        answers.write(json.dumps({"ended": result.ended, "size": len(result.answer)}).encode() + b"\n" + result.answer)
        answers.flush()


def _run(
    work: Callable[[Mapping[str, Any], bytes], bytes], fields: Mapping[str, Any], data: bytes, limits: ForkLimits
) -> ForkResult:
    return run_confined(lambda: work(fields, data), limits)
