"""The process that isolates a run, such as bubblewrap: its start in its control group, its end, and what is below it.

It does not use asyncio's subprocesses: if cancelled between fork and connected pipes they lose the process, and a
supervisor is cancelled whenever its worker dies. Here the process has an owner from the moment it exists.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from exec_supervisor.local.cgroups import Cgroup
from exec_supervisor.system_calls import TCP_BUFFERS

PROC: Final = Path("/proc")
_EXIT_WAIT_S: Final = 2.0
_REAP_EVERY_S: Final = 0.005
_MAX_ERROR_BYTES: Final = 4096
_STREAM_BYTES: Final = 1 << 18
_OOM_SCORE_START: Final = 1000
_OOM_SCORE_PROGRAM: Final = 900
_CLONE_NEWNET: Final = 0x40000000
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class SandboxProcess:
    """A started process. Always call `end` and `close_streams`, and `connect` before its line is used."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.pid = process.pid
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._siblings = frozenset(load_children(os.getpid())) - {process.pid}
        self._ended = False
        self._transports: list[asyncio.BaseTransport] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect the executor's line: returns its output and its input."""
        if self._process.stdin is None or self._process.stdout is None:
            raise ValueError("the process needs its pipes")
        loop = asyncio.get_running_loop()
        stdout = await self._connect_reader(self._process.stdout)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._process.stdin)
        self._transports.append(transport)
        return stdout, asyncio.StreamWriter(transport, protocol, stdout, loop)

    async def read_errors(self) -> str:
        """The first 4 KiB of its stderr. Reads to the end, so that no process inside blocks on it."""
        if self._process.stderr is None:
            raise ValueError("the process needs its pipes")
        stderr = await self._connect_reader(self._process.stderr)
        kept = b""
        while chunk := await stderr.read(_MAX_ERROR_BYTES):
            kept = (kept + chunk)[:_MAX_ERROR_BYTES]
        return kept.decode("utf-8", "replace").strip()

    def protect_runner(self) -> None:
        """Make the kernel kill the program before its runner when memory runs out: the runner has the outputs.

        All processes inside start as the first to be killed on this machine, and can't change that: /proc is read-only
        there. Unless this process is root, the kernel rejects the change, and the larger process is killed.
        """
        for pid in load_children(self.pid):
            with contextlib.suppress(PermissionError, ProcessLookupError, FileNotFoundError):
                _save_oom_score(pid, _OOM_SCORE_PROGRAM)

    def limit_tcp_buffers(self) -> None:
        """Limit the memory of connections inside. Only root can, where /proc/sys is writable; a control group of
        version 2 counts this memory too."""
        for pid in load_children(self.pid):
            # A thread of its own enters the namespace and ends there.
            entering = threading.Thread(target=_limit_tcp_buffers, args=(pid,))
            entering.start()
            entering.join()

    async def end(self) -> None:
        """Kill it and all its descendants, and wait until they are gone (TimeoutError after 2 s). Can be repeated.

        Usually its process namespace dies with it. Bubblewrap that is killed during its setup leaves a process behind
        that has not yet requested to die with its parent; as the subreaper this process inherits and kills it too.
        """
        if self._ended:
            return
        async with asyncio.timeout(_EXIT_WAIT_S):
            if self._process.returncode is None:
                self._process.kill()
                await self._wait()
            # Children that existed before are not its orphans.
            while orphans := [pid for pid in load_children(os.getpid()) if pid not in self._siblings]:
                for pid in orphans:
                    _kill_orphan(pid)
                await asyncio.sleep(_REAP_EVERY_S)
        # Only set when everything is done: a cancelled call can be repeated.
        self._ended = True
        os.close(self._pidfd)

    def close_streams(self) -> None:
        """Close the descriptors; unread data is lost."""
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
    """Become the parent of this process's orphaned descendants; call it before the first child is started."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start_process(
    command: Sequence[str], *, uid: int, cgroup: Cgroup | None, pass_fds: Sequence[int]
) -> SandboxProcess:
    """Start `command` with an empty environment; root switches to `uid` before exec. Raises OSError."""

    def enter() -> None:
        # Runs between fork and exec. Safe because the supervisor has only one thread.
        _save_oom_score(os.getpid(), _OOM_SCORE_START)
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
    return SandboxProcess(process)


def _save_oom_score(pid: int, score: int) -> None:
    with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(score))


def _kill_orphan(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, os.WNOHANG)


def load_memory_bytes(root_pid: int, proc: Path = PROC) -> int:
    """Resident memory of a process and all below it, anonymous and shared, without mapped files on disk.

    Pages that a fork shares are counted per process, so the sum is an upper bound.
    """
    return sum(_load_resident_bytes(proc / str(pid)) for pid in load_descendants(root_pid, proc))


def load_descendants(root_pid: int, proc: Path = PROC) -> frozenset[int]:
    """A process and everything below it. Orphans stay below: the sandbox's first process adopts them."""
    children = _load_all_children(proc)
    found: set[int] = set()
    ahead = [root_pid]
    while ahead:
        pid = ahead.pop()
        if pid not in found:
            found.add(pid)
            ahead.extend(children.get(pid, ()))
    return frozenset(found)


def _limit_tcp_buffers(pid: int) -> None:
    with contextlib.suppress(OSError), open(PROC / str(pid) / "ns" / "net", "rb") as namespace:
        # Never those of the namespace that this process shares with others.
        is_own = os.fstat(namespace.fileno()).st_ino == os.stat(PROC / "self" / "ns" / "net").st_ino
        if not is_own and ctypes.CDLL(None).setns(namespace.fileno(), _CLONE_NEWNET) == 0:
            for name, value in TCP_BUFFERS.items():
                (PROC / "sys" / name.replace(".", "/")).write_text(value, encoding="ascii")


def load_children(parent_pid: int, proc: Path = PROC) -> tuple[int, ...]:
    """The direct children of a process, including zombies."""
    return tuple(_load_all_children(proc).get(parent_pid, ()))


def _load_all_children(proc: Path) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit() and (parent := _try_load_parent(entry)):
            children.setdefault(parent, []).append(int(entry.name))
    return children


def _try_load_parent(entry: Path) -> int | None:
    try:
        stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def _load_resident_bytes(entry: Path) -> int:
    try:
        lines = (entry / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
