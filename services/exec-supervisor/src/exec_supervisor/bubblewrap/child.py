"""The bubblewrap process of a run: how it is started as another user inside its control group, and how it is ended.

Not by asyncio's own subprocesses: cancelled between fork and connected pipes they lose the process, and a supervisor is
cancelled whenever its worker dies. Here the process has an owner from the moment it exists.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import IO, Final

from exec_supervisor.bubblewrap.cgroups import Cgroup
from exec_supervisor.bubblewrap.watchdog import load_children

_EXIT_WAIT_S: Final = 2.0
_REAP_EVERY_S: Final = 0.005
_MAX_ERROR_BYTES: Final = 4096
_STREAM_BYTES: Final = 1 << 18
_FIRST_TO_GO: Final = 1000
_BEFORE_THE_RUNNER: Final = 900
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class SandboxChild:
    """A started bubblewrap. Call `end` and `close_streams` in any case, `connect` before its line is used."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.pid = process.pid
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._siblings = frozenset(load_children(os.getpid())) - {process.pid}
        self._ended = False
        self._transports: list[asyncio.BaseTransport] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The executor's line: what it says and what it hears."""
        if self._process.stdin is None or self._process.stdout is None:
            raise ValueError("the process needs its pipes")
        loop = asyncio.get_running_loop()
        stdout = await self._connect_reader(self._process.stdout)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._process.stdin)
        self._transports.append(transport)
        return stdout, asyncio.StreamWriter(transport, protocol, stdout, loop)

    async def read_errors(self) -> str:
        """What it said on stderr, the first 4 KiB; reads on to the end, so that nobody in there blocks on it."""
        if self._process.stderr is None:
            raise ValueError("the process needs its pipes")
        stderr = await self._connect_reader(self._process.stderr)
        kept = b""
        while chunk := await stderr.read(_MAX_ERROR_BYTES):
            kept = (kept + chunk)[:_MAX_ERROR_BYTES]
        return kept.decode("utf-8", "replace").strip()

    def protect_runner(self) -> None:
        """Let the kernel end the program before its runner when memory runs out: the runner has the outputs.

        All inside begins as the first to be ended on this machine, and can't change that: /proc is read-only there.
        Where we are not root the kernel lets us change nothing either, and the larger process is ended.
        """
        for pid in load_children(self.pid):
            with contextlib.suppress(PermissionError, ProcessLookupError, FileNotFoundError):
                _save_oom_score(pid, _BEFORE_THE_RUNNER)

    async def end(self) -> None:
        """Kill it and all it started, and wait until that is gone (TimeoutError after 2 s). May be repeated.

        Usually its process namespace dies with it. Killed while it is still being set up, it leaves a process behind
        that has not yet asked to die with its parent; as the subreaper we inherit such a one and kill it too.
        """
        if self._ended:
            return
        async with asyncio.timeout(_EXIT_WAIT_S):
            if self._process.returncode is None:
                self._process.kill()
                await self._wait()
            # Children from before this one are no orphans of it.
            while orphans := [pid for pid in load_children(os.getpid()) if pid not in self._siblings]:
                for pid in orphans:
                    _kill_orphan(pid)
                await asyncio.sleep(_REAP_EVERY_S)
        # A cancelled end comes back here: only what is wholly done counts.
        self._ended = True
        os.close(self._pidfd)

    def close_streams(self) -> None:
        """Give back the descriptors; what was not read is lost."""
        for transport in self._transports:
            transport.close()

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(self._pidfd, lambda: None if ended.done() else ended.set_result(None))
        try:
            await ended
        finally:
            loop.remove_reader(self._pidfd)
        self._process.wait()

    async def _connect_reader(self, pipe: IO[bytes]) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(_STREAM_BYTES)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._transports.append(transport)
        return reader


def become_subreaper() -> None:
    """Have the kernel hand us the orphans of our children; to be called before the first child is started."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start_child(command: Sequence[str], *, uid: int, cgroup: Cgroup | None, pass_fds: Sequence[int]) -> SandboxChild:
    """Start `command` with an empty environment; as root it becomes `uid` before it is executed. Raises OSError."""

    def enter() -> None:
        # Runs between fork and exec. Safe because the supervisor has one thread only.
        _save_oom_score(os.getpid(), _FIRST_TO_GO)
        if cgroup is not None:
            cgroup.join()
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    process = subprocess.Popen(
        command,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
        cwd="/",
        pass_fds=pass_fds,
        preexec_fn=enter,  # noqa: PLW1509 - the supervisor has one thread
        start_new_session=True,
    )
    return SandboxChild(process)


def _save_oom_score(pid: int, score: int) -> None:
    with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(score))


def _kill_orphan(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, os.WNOHANG)
