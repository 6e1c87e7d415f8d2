"""A sandbox in the supervisor's own container: the executor is its descendant, and users are the walls between them.

`start_executor` is called first in a supervisor that starts as root with three capabilities. Afterwards no process of
the container has any:

| process | real user | effective user | saved user | parent |
|---|---|---|---|---|
| supervisor | SUPERVISOR_UID | SUPERVISOR_UID | SUPERVISOR_UID | |
| killer | KILLER_UID | the program's | KILLER_UID | supervisor |
| runner | RUNNER_UID | the program's | KILLER_UID | killer |
| program | the program's | the program's | the program's | runner |

A process may signal another one if its real or effective user is the other's real or saved user. So the killer can kill
runner and program, the runner only the program, and the program none of the others. The killer waits for the end of a
pipe: when the supervisor closes it or dies, the killer kills all that it may, which the kernel does in one step that no
fork escapes.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from everturn.execution.framing import FrameDecoder, FrameStream
from everturn.execution.messages import EXECUTOR_FRAME_BYTES, GATEWAY_SOCKET, LimitName, Posture, RunLimits
from everturn.execution.privileges import leave_root
from exec_supervisor.supervisor.listeners import open_listener

SUPERVISOR_UID: Final = 1002
RUNNER_UID: Final = 1003
KILLER_UID: Final = 1004
"""The same numbers are in executor/confine.py."""

SOCKET_GROUP: Final = 1001
"""The program's group, which can connect to the gateway's socket."""

CAPABILITIES: Final = {"SETGID": 6, "SETUID": 7, "SETPCAP": 8}
"""What the start needs, by name and number: to become other users, and to give up the right to gain capabilities."""

END_LIMIT_S: Final = 2.0
_REAP_EVERY_S: Final = 0.005
_KILL_EVERY_S: Final = 0.01
_MAX_KILLS: Final = 100
_MAX_ERROR_BYTES: Final = 4096
_STREAM_BYTES: Final = 1 << 18
_OOM_SCORE_RUNNER: Final = 900
"""Below the program's 1000: the kernel kills the program first, and the runner has the outputs."""

_FOR_GROUP: Final = 0o660
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_MAX_DESCRIPTOR: Final = 1 << 16


@dataclass(slots=True)
class ChildExecutor:
    """A started executor: its line, and a descriptor from which its stderr can be read."""

    line: socket.socket
    errors: int
    _killing: int
    _end_by: float = field(default=0.0, init=False)

    async def end(self) -> None:
        """Kill everything of the run and wait until it is gone. Can be repeated. Raises TimeoutError 2 s after the
        first call: then the run ends with this process, if that is the first of its container."""
        if not self._end_by:
            self._end_by = asyncio.get_running_loop().time() + END_LIMIT_S
            os.close(self._killing)
        async with asyncio.timeout_at(self._end_by):
            while _has_children():  # noqa: ASYNC110 - the end of an orphan is not an event of the loop
                await asyncio.sleep(_REAP_EVERY_S)


def start_executor(program_uid: int, preload: Sequence[str] = ()) -> ChildExecutor:
    """Start the executor, which imports the modules `preload`, and become SUPERVISOR_UID.

    Call it first in the process, which has one thread, and no other child now or later. Raises PermissionError unless
    it is root with CAPABILITIES, BlockingIOError if the container already has processes of these users: each container
    serves one run. After another OSError, end the process.
    """
    users = frozenset((SUPERVISOR_UID, RUNNER_UID, KILLER_UID, program_uid))
    _check_start(Path("/proc/self/status").read_text(encoding="ascii"), users)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    line, far_line = socket.socketpair()
    (errors, far_errors), (far_killing, killing) = os.pipe(), os.pipe()
    if os.fork() == 0:
        command = [sys.executable, "-I", "-B", "-X", "utf8", "-m", "executor", "--program-uid", str(program_uid)]
        command += ["--preload", ",".join(preload)] if preload else []
        _become_killer(command, far_line.detach(), far_errors, far_killing, program_uid)
    far_line.close()
    os.close(far_errors)
    os.close(far_killing)
    leave_root(*[SUPERVISOR_UID] * 3, gid=SUPERVISOR_UID, groups=[SOCKET_GROUP])
    return ChildExecutor(line, errors, killing)


def _check_start(status: str, users: frozenset[int]) -> None:
    """Raises PermissionError, BlockingIOError."""
    effective = int(status.partition("CapEff:")[2].partition("\n")[0], 16)
    missing = [name for name, number in CAPABILITIES.items() if not effective >> number & 1]
    if os.geteuid() != 0 or missing:
        wanted = ", ".join(CAPABILITIES)
        raise PermissionError(f"the supervisor must start as root with the capabilities {wanted}")
    if found := sorted(pid for pid, ids in load_users().items() if ids & users):
        raise BlockingIOError(f"process {found[0]} of this container runs as a user that is reserved for runs")


def load_users(proc: Path = Path("/proc")) -> dict[int, frozenset[int]]:
    """Real, effective, saved and file system users of all processes that are visible here, by pid."""
    found: dict[int, frozenset[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                status = (entry / "status").read_text(encoding="utf-8", errors="replace")
                found[int(entry.name)] = frozenset(map(int, status.partition("\nUid:")[2].partition("\n")[0].split()))
    return found


def _become_killer(command: list[str], line: int, errors: int, killing: int, program_uid: int) -> NoReturn:
    """Runs in the first fork: starts the executor, waits for the end of the pipe, and kills until nothing is left."""
    try:
        waiting, dropped = os.pipe()
        if os.fork() == 0:
            os.close(dropped)
            _become_executor(command, line, errors, waiting)
        leave_root(KILLER_UID, program_uid, KILLER_UID, gid=KILLER_UID)
        os.dup2(killing, 0)
        os.closerange(1, _MAX_DESCRIPTOR)
        os.read(0, 1)
        for _ in range(_MAX_KILLS):
            os.kill(-1, signal.SIGKILL)
            time.sleep(_KILL_EVERY_S)
            _has_children()
    except ProcessLookupError:
        os._exit(0)
    except OSError as error:
        os.write(errors, f"the executor can't be started: {error}".encode())
    finally:
        os._exit(1)


def _become_executor(command: list[str], line: int, errors: int, waiting: int) -> NoReturn:
    """Runs in the second fork. The executor leaves root itself: an exec would take its second user away."""
    try:
        os.setsid()
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
            score.write(str(_OOM_SCORE_RUNNER))
        os.read(waiting, 1)
        for descriptor, place in ((line, 0), (line, 1), (errors, 2)):
            os.dup2(descriptor, place)
        os.closerange(3, _MAX_DESCRIPTOR)
        os.chdir("/")
        os.execve(command[0], command, {})  # noqa: S606 - without a shell
    except OSError as error:
        os.write(errors, f"the executor can't be started: {error}".encode())
    finally:
        os._exit(1)


@dataclass(frozen=True, slots=True)
class ChildSandbox:
    """A `Sandbox` of users in one container."""

    executor: ChildExecutor
    line: FrameStream
    listener: socket.socket
    posture: Posture
    _errors: asyncio.StreamReader

    @property
    def network_listener(self) -> None:
        """Programs beside their supervisor have no network."""

    def is_over_memory(self, limits: RunLimits) -> bool:
        """Always False: the container's control group enforces the limit."""
        del limits
        return False

    def load_hits(self) -> tuple[LimitName, ...]:
        """Always empty: the executor reads them from the container's control group, and the engine reports them."""
        return ()

    def protect_runner(self) -> None:
        """Does nothing: runner and program have set their order themselves."""

    async def read_errors(self) -> str:
        """The first 4 KiB of the executor's stderr. Reads to the end, so that no process inside blocks on it."""
        kept = b""
        while chunk := await self._errors.read(_MAX_ERROR_BYTES):
            kept = (kept + chunk)[:_MAX_ERROR_BYTES]
        return kept.decode("utf-8", "replace").strip()

    async def end(self) -> None:
        await self.executor.end()


def _has_children() -> bool:
    """Reap all that have ended; returns whether any is left."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
        return True
    return False


@contextlib.asynccontextmanager
async def open_sandbox(executor: ChildExecutor, folder: Path, posture: Posture) -> AsyncGenerator[ChildSandbox]:
    """The sandbox of a started executor, with the gateway's socket in `folder`, where only the supervisor can write.

    At the end everything of the run is killed. Raises OSError; TimeoutError if something can't be ended.
    """
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(executor.end)
        reader, writer = await asyncio.open_unix_connection(sock=executor.line)
        stack.callback(writer.transport.abort)
        errors = asyncio.StreamReader(_STREAM_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(errors), os.fdopen(executor.errors, "rb", buffering=0)
        )
        stack.callback(transport.close)
        path = folder / Path(GATEWAY_SOCKET).name
        listener = stack.enter_context(open_listener(path, mode=_FOR_GROUP, gid=SOCKET_GROUP))
        stack.callback(path.unlink, missing_ok=True)
        line = FrameStream(reader, writer, FrameDecoder(EXECUTOR_FRAME_BYTES, allow_raw=True))
        yield ChildSandbox(executor, line, listener, posture, errors)
