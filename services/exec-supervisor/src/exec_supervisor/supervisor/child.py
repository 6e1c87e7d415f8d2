"""The bubblewrap process of a run: how it is started as another user inside its control group, and how it is ended."""

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Sequence
from typing import Final

from exec_supervisor.supervisor.cgroups import Cgroup
from exec_supervisor.supervisor.watchdog import load_children

_EXIT_WAIT_S: Final = 2.0
_MAX_ERROR_BYTES: Final = 4096
_REAP_EVERY_S: Final = 0.005
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class SandboxChild:
    """A started bubblewrap. Its stdin and stdout are the executor's line, its stderr says why it could not start."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("the process needs all three pipes")
        self.pid = process.pid
        self.stdin = process.stdin
        self.stdout = process.stdout
        self._stderr = process.stderr
        self._process = process

    async def wait(self) -> int:
        """The exit code, negative for a signal."""
        return await self._process.wait()

    async def read_errors(self) -> str:
        """What it said on stderr, the first 4 KiB; reads on to the end, so that nobody in there blocks on it."""
        kept = b""
        while chunk := await self._stderr.read(_MAX_ERROR_BYTES):
            kept = (kept + chunk)[:_MAX_ERROR_BYTES]
        return kept.decode("utf-8", "replace").strip()

    async def end(self) -> None:
        """Kill it and everything it started, and wait until all of it is gone.

        Usually its process namespace dies with it. Killed while it is still being set up, it leaves a process behind
        that has not yet asked to die with its parent; as the subreaper we inherit such a one and kill it too.
        """
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        async with asyncio.timeout(_EXIT_WAIT_S):
            await self._process.wait()
            while orphans := load_children(os.getpid()):
                for pid in orphans:
                    _kill_orphan(pid)
                await asyncio.sleep(_REAP_EVERY_S)


def become_subreaper() -> None:
    """Have the kernel hand us the orphans of our children; to be called before the first child is started."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _kill_orphan(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, os.WNOHANG)


async def start_child(
    command: Sequence[str], *, uid: int, cgroup: Cgroup | None, pass_fds: Sequence[int]
) -> SandboxChild:
    """Start `command` with an empty environment; as root it becomes `uid` before it is executed."""

    def enter() -> None:
        # Runs between fork and exec. Safe because the supervisor has no other thread at this time.
        if cgroup is not None:
            cgroup.join()
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
        cwd="/",
        pass_fds=pass_fds,
        preexec_fn=enter,
        start_new_session=True,
    )
    return SandboxChild(process)
