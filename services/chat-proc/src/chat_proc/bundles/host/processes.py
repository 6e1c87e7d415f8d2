"""Processes with limits that leave nothing behind, and whose output is read whatever its amount."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final

from chat_proc.bundles.host.section import MIB
from everturn.core.cancellation import acquire_in_thread, end_tasks
from everturn.core.errors import Invalid
from everturn.core.logging import Redactor
from everturn.core.subprocesses import END_WITHIN_S, kill_group, wait_for_start
from everturn.core.transports import CheckedWriter
from everturn.execution.messages import UidRange
from everturn.execution.users import USER_LOCKS, claim_user, find_run_folder

MAX_LINE_CHARS: Final = 2_000
"""A longer line is cut, after secrets were removed from its first 64 KiB."""
LINES_PER_S: Final = 20.0
LINES_AT_ONCE: Final = 200
"""Lines of output that are passed on: so many at once, and then so many per second. The others are only counted."""
LAST_LINES: Final = 30
"""Of those that were only counted, the last ones are passed on when the output ends: a traceback explains a crash."""
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/proc", "/sys/devices/system", "/sys/fs/cgroup"),
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf"),
    *("/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group"),
    *("/etc/os-release", "/etc/debian_version", "/etc/lsb-release", "/etc/redhat-release", "/etc/alpine-release"),
    *("/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/fonts", "/etc/alternatives"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/dev/urandom", "/dev/random", "/dev/zero"),
)
"""What programs and libraries read of a system; nothing here is a secret of the platform."""
_READ_BYTES: Final = 64 * 1024
_READ_PAUSE_S: Final = 0.005
"""After each read: however fast a process prints, reading takes a few percent of the event loop. The pipe is full
meanwhile, which delays that process only."""
_NO_BUFFER: Final = 1
"""Bytes of the reader's limit: what is not read yet stays in the pipe, and costs nothing."""
_WATCHDOG: Final = str(Path(__file__).with_name("watchdog.py"))
_END_WITHIN_S: Final = 8.0
"""The watchdog has 5 s to kill everything that it finds."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """For each process, apart from `processes`, the threads and processes of all together, and `disk_bytes`, what their
    home and their shared memory take. Without a `uid` they belong to the worker's user."""

    memory_bytes: int = 1024 * MIB
    file_bytes: int = 512 * MIB
    open_files: int = 256
    processes: int = 64
    disk_bytes: int = 512 * MIB
    uid: int | None = None


class LineBudget:
    """Decides which lines of output are passed on."""

    def __init__(self, now_s: float) -> None:
        self._left = float(LINES_AT_ONCE)
        self._at_s = now_s
        self.dropped = 0

    def allows(self, now_s: float) -> bool:
        self._left = min(float(LINES_AT_ONCE), self._left + (now_s - self._at_s) * LINES_PER_S)
        self._at_s = now_s
        # A line after dropped ones follows the line that counts them.
        lines = 2 if self.dropped else 1
        if self._left < lines:
            self.dropped += 1
            return False
        self._left -= lines
        return True

    def drop(self, lines: int) -> None:
        self.dropped += lines

    def take_dropped(self) -> int:
        dropped, self.dropped = self.dropped, 0
        return dropped


class WatchedProcess:
    """A process that is started on entry, and killed on exit with everything that it has started. `on_line` gets the
    lines of its output, without the secrets of `redactor`. `descriptor` is a socket or pipe that it inherits; one that
    `speaks` has it as its input and output, and `on_line` gets its error output. A process of another user can reach
    what is `shown`. If there are `readable` folders, it reads only those and the system's, opens only sockets of the
    internet, and writes only to its `home`. It is ended with the status TOO_LARGE once that takes too much space. If
    the worker is killed, the folder `root` is removed."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        limits: ProcessLimits,
        on_line: Callable[[str], None],
        redactor: Redactor | None = None,
        descriptor: int = -1,
        speaks: bool = False,
        shown: Sequence[Path] = (),
        readable: Sequence[Path] = (),
        home: Path | None = None,
        root: Path | None = None,
    ) -> None:
        self._plan = json.dumps(
            {
                "command": list(command),
                "folder": str(folder),
                "environment": dict(environment),
                "descriptor": descriptor,
                "speaks": speaks,
                "memory_bytes": limits.memory_bytes,
                "file_bytes": limits.file_bytes,
                "open_files": limits.open_files,
                "processes": limits.processes,
                "uid": limits.uid,
                "shown": [str(path) for path in shown],
                "readable": [str(path) for path in (*_SYSTEM, *readable)] if readable else [],
                "writable": [str(path) for path in ("/dev/null", *filter(None, [home]))],
                "home": str(home or ""),
                "disk_bytes": limits.disk_bytes,
                "root": str(root or ""),
            }
        ).encode()
        self._descriptor = descriptor
        self._on_line = on_line
        self._redactor = redactor or Redactor()
        self._process: Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self._waiting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "WatchedProcess":
        """Raises OSError if it can't be started."""
        process = await wait_for_start(
            asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                _WATCHDOG,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=_NO_BUFFER,
                env={},
                start_new_session=True,
                pass_fds=() if self._descriptor < 0 else (self._descriptor,),
            ),
            kill_group,
        )
        self._process = process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("The process was started without pipes.")
        # Not as an argument, which everyone can read: it may have secrets of pip's settings.
        CheckedWriter(process.stdin).write(self._plan + b"\n")
        self._readers = [asyncio.create_task(self._read_lines(process.stdout))]
        self._waiting = asyncio.create_task(self._wait(process))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, waiting = self._process, self._waiting
        if process is None or waiting is None:
            return
        if process.stdin is not None:
            # It may have ended before.
            with suppress(ConnectionError):
                CheckedWriter(process.stdin).write(b"end\n")
            process.stdin.close()
        try:
            # The watchdog kills everything when its input ends.
            await asyncio.wait({waiting}, timeout=_END_WITHIN_S)
            # What it printed last is in the pipe, unless another process holds that.
            await asyncio.wait(self._readers, timeout=END_WITHIN_S)
        finally:
            await kill_group(process, has_just_ended=True)
            await end_tasks(waiting, *self._readers)

    @property
    def status(self) -> int | None:
        """The exit status, 128 and the number of the signal that killed it, or None if it runs."""
        return None if self._process is None else self._process.returncode

    async def wait(self, limit_s: float) -> bool:
        """Wait for the end of the process, at most `limit_s`; whether it has ended."""
        try:
            async with asyncio.timeout(limit_s):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    async def _wait(self, process: Process) -> None:
        await process.wait()
        self._ended.set()

    async def _read_lines(self, stream: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        budget, rest, left_out = LineBudget(loop.time()), b"", b""
        while data := await stream.read(_READ_BYTES):
            data, begin = rest + data, 0
            while (end := data.find(b"\n", begin)) >= 0:
                if not budget.allows(loop.time()):
                    # The others at once: one by one, lines that nobody reads would cost more than all else.
                    budget.drop(data.count(b"\n", end + 1))
                    first, begin = begin, data.rfind(b"\n") + 1
                    left_out = (left_out + data[first:begin])[-_READ_BYTES:]
                    break
                if dropped := budget.take_dropped():
                    self._on_line(f"({dropped} lines were left out.)")
                    left_out = b""
                self._on_line(self._decode(data[begin:end]))
                begin = end + 1
            rest = data[begin:][:_READ_BYTES]
            await asyncio.sleep(_READ_PAUSE_S)
        budget.drop(bool(rest))
        # The first one may be the end of a longer line, with a part of a secret that would not be found.
        last = left_out.split(b"\n")[len(left_out) == _READ_BYTES : -1] + [rest] * bool(rest)
        last = last[-LAST_LINES:]
        if dropped := budget.take_dropped() - len(last):
            self._on_line(f"({dropped} lines were left out.)")
        for line in last:
            self._on_line(self._decode(line))

    def _decode(self, line: bytes) -> str:
        text = line[:_READ_BYTES].decode("utf-8", "replace").rstrip("\r")
        # First: a part of a secret would not be found.
        return self._redactor.redact(text)[:MAX_LINE_CHARS]


@asynccontextmanager
async def claim_uid(uids: range) -> AsyncGenerator[int | None]:
    """A user for one process of a bundle, if the worker can change users: the worker's own files are out of its reach,
    and no other process of this machine counts towards its limits. Raises Invalid if all are in use."""
    if os.geteuid() != 0 or not uids:
        yield None
        return
    claimed = ExitStack()
    # In a thread, because it reads the owners of all processes of the machine.
    uid = await acquire_in_thread(partial(claimed.enter_context, _claim(uids)), lambda _: claimed.close())
    try:
        yield uid
    finally:
        claimed.close()


@contextmanager
def _claim(uids: range) -> Generator[int]:
    try:
        with claim_user(UidRange(uids[0], uids[-1]), Path(find_run_folder()) / USER_LOCKS, "BUNDLE_UIDS") as uid:
            yield uid
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise Invalid(f"There is no user for a process of the bundle: {place}{error.strerror}.") from error
