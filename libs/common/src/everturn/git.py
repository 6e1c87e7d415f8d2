"""Git as a child process: without our environment, configuration, credentials, hooks and submodules, within limits of
time, memory and disk.

Nothing is checked out: files are read from the packed objects, so names, links and attributes of a hostile repository
never reach a file system.
"""

import asyncio
import math
import os
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal

from everturn.core.cancellation import acquire_in_thread, end_tasks
from everturn.core.errors import Invalid, Unavailable
from everturn.core.kept_folders import measure_folder
from everturn.core.subprocesses import kill_group, wait_for_start

READ_S: Final = 30.0
"""For each object and for each listing."""
RUN_S: Final = 120.0
DISK_BYTES: Final = 1024 * 1024 * 1024
MEMORY_BYTES: Final = 2 * 1024 * 1024 * 1024
"""Address space of each process of git; a pack is mapped in small windows."""
DISK_CHECK_S: Final = 0.25
MAX_REFS_BYTES: Final = 256 * 1024
MAX_LISTING_BYTES: Final = 64 * 1024 * 1024
"""About 500,000 files."""
MAX_MESSAGE_BYTES: Final = 8 * 1024
MAX_CAUSE_CHARS: Final = 600
_CHUNK: Final = 64 * 1024
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_CONFIGURATION: Final = (
    "core.hooksPath=/dev/null",
    "core.symlinks=false",
    "core.fsmonitor=false",
    "core.bigFileThreshold=1m",
    "core.packedGitWindowSize=16m",
    "core.packedGitLimit=256m",
    "credential.helper=",
    "fetch.unpackLimit=1",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "http.followRedirects=false",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=30",
    "pack.threads=1",
    "protocol.version=2",
)
_LIMITED: Final = 'ulimit -c 0; ulimit -f "$1"; ulimit -t "$2"; ulimit -v "$3"; shift 3; exec "$@"'
"""Limits of one file, of time and of memory, which everything that git starts inherits."""


Kind = Literal["file", "link", "submodule", "folder"]
_KINDS: Final[Mapping[str, Kind]] = {"120000": "link", "160000": "submodule", "040000": "folder"}


class RepositoryRefused(Invalid):
    """The repository can't be used: a sentence for its author and the operator."""


class OutputTooLong(RepositoryRefused):
    """What git would answer is too long."""


class GitUnavailable(Unavailable):
    """The repository can't be read now."""


class GitMissing(GitUnavailable):
    """Git is not installed here."""


@dataclass(frozen=True, slots=True)
class GitLimits:
    """What git may do. `protocols` are those of other repositories, separated by colons. `environment` has the settings
    of a proxy and of certificates, if any. A process may use twice `run_s` of CPU."""

    protocols: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: {})
    disk_bytes: int = DISK_BYTES
    run_s: float = RUN_S


@dataclass(frozen=True, slots=True)
class GitFolder:
    """A bare repository, or an empty folder for one."""

    path: Path
    limits: GitLimits

    async def init(self) -> None:
        """Make it an empty repository. Raises GitUnavailable."""
        await self.run(["init", "--quiet", "--bare", "--template=", "--initial-branch=main"])

    async def run(
        self,
        command: Sequence[str],
        *,
        limit_s: float = READ_S,
        output_bytes: int = MAX_REFS_BYTES,
        given: AsyncGenerator[bytes] | None = None,
        credential: int | None = None,
        hide: Callable[[str], str] = str,
        find_cause: Callable[[Sequence[str]], str] | None = None,
    ) -> bytes:
        """The output of git. `given` is what it reads, `credential` a descriptor from which it reads user and password
        once a host asks for them; `hide` takes secrets out of its messages. `find_cause` chooses from the lines of a
        message what to report; without it that is the first one with a cause.

        Raises RepositoryRefused if the repository or the output is too large, GitUnavailable for all other failures,
        and what `given` raises.
        """
        with tempfile.TemporaryFile() as stderr:
            process = await self.start(
                command, stdin=DEVNULL if given is None else PIPE, stderr=stderr.fileno(), credential=credential
            )
            running = asyncio.create_task(_exchange(process, given, output_bytes))
            left = iter(range(int(limit_s / DISK_CHECK_S) + 1))
            try:
                while not running.done():
                    await asyncio.wait({running}, timeout=DISK_CHECK_S)
                    if await asyncio.to_thread(measure_folder, self.path) > self.limits.disk_bytes:
                        raise RepositoryRefused(
                            f"The repository needs more than {self.limits.disk_bytes // 2**20} MiB."
                        )
                    if next(left, None) is None:
                        raise GitUnavailable(f"Git {command[0]} took more than {limit_s:g} s.")
                output = running.result()
            finally:
                await end_tasks(running)
                await kill_group(process, has_just_ended=True)
            if process.returncode:
                stderr.seek(0)
                lines = _read_lines(stderr.read(MAX_MESSAGE_BYTES))
                cause = hide((find_cause or _find_cause)(lines))
                raise GitUnavailable(f"Git {command[0]} failed: {_shorten(cause)}")
        return output

    async def start(
        self, command: Sequence[str], *, stdin: int = DEVNULL, stderr: int = DEVNULL, credential: int | None = None
    ) -> Process:
        """A process of git with a pipe for its output; the caller ends it. Raises GitUnavailable."""
        git = shutil.which("git", path=_PATH)
        if git is None:
            raise GitMissing()
        helper = [] if credential is None else [f"credential.helper=!give() {{ cat /dev/fd/{credential}; }}; give"]
        options = [part for setting in (*_CONFIGURATION, *helper) for part in ("-c", setting)]
        maxima = [2 * self.limits.disk_bytes // 512, math.ceil(2 * self.limits.run_s), MEMORY_BYTES // 1024]
        environment = {
            **self.limits.environment,
            "PATH": _PATH,
            "HOME": str(self.path),
            "LC_ALL": "C",
            "GIT_DIR": str(self.path),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "",
            "GIT_ALLOW_PROTOCOL": self.limits.protocols,
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
        }
        try:
            return await wait_for_start(
                asyncio.create_subprocess_exec(
                    *("/bin/sh", "-c", _LIMITED, "git", *map(str, maxima), git, *options),
                    *("--literal-pathspecs", *command),
                    stdin=stdin,
                    stdout=PIPE,
                    stderr=stderr,
                    cwd=self.path,
                    env=environment,
                    start_new_session=True,
                    pass_fds=() if credential is None else (credential,),
                ),
                kill_group,
            )
        except OSError as error:
            raise GitUnavailable(f"Git can't be started: {error.strerror}.") from error


@asynccontextmanager
async def open_git_folder(limits: GitLimits) -> AsyncGenerator[GitFolder]:
    """A new folder of temporary files. It is removed in a thread: a fetched repository can have a gigabyte."""
    folder = await acquire_in_thread(partial(tempfile.mkdtemp, prefix="everturn-git-"), os.rmdir)
    try:
        yield GitFolder(Path(folder), limits)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """`path` is as the repository has it: in a hostile one, bytes that are not UTF-8 are surrogates, and a part can be
    `..`. `is_program` for a file that is executable."""

    kind: Kind
    path: str
    size: int
    digest: str
    is_program: bool = False


class GitCommit:
    """The files of a commit."""

    def __init__(self, folder: GitFolder, commit: str) -> None:
        self._folder = folder
        self._commit = commit
        self._objects: Process | None = None

    async def list_entries(self, folders: Sequence[str] = ()) -> Iterator[TreeEntry]:
        """What is below these folders, or in the whole commit: read it in a thread, and only as far as needed. Raises
        RepositoryRefused, GitUnavailable."""
        command = ["ls-tree", "-r", "-z", "--long", "--full-tree", self._commit, "--", *folders]
        return _read_entries(await self._folder.run(command, output_bytes=MAX_LISTING_BYTES))

    async def list_folder(self, folder: str = "") -> Iterator[TreeEntry]:
        """What is directly in a folder, or at the top; nothing if there is no such folder. Raises as `list_entries`."""
        below = [f"{folder}/"] if folder else []
        command = ["ls-tree", "-z", "--long", "--full-tree", self._commit, "--", *below]
        return _read_entries(await self._folder.run(command, output_bytes=MAX_LISTING_BYTES))

    async def read(self, entry: TreeEntry) -> bytes:
        """The content of a file. Raises GitUnavailable."""
        try:
            async with asyncio.timeout(READ_S):
                return await self._read_object(entry)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as error:
            await self.close()
            raise GitUnavailable(f"Git can't read the file {entry.path!a}.") from error

    async def close(self) -> None:
        objects, self._objects = self._objects, None
        if objects is not None:
            await kill_group(objects)

    async def _read_object(self, entry: TreeEntry) -> bytes:
        if self._objects is None:
            self._objects = await self._folder.start(["cat-file", "--batch"], stdin=PIPE)
        requests, answers = self._objects.stdin, self._objects.stdout
        if requests is None or answers is None:
            raise RuntimeError("Git was started without pipes.")
        requests.write(f"{entry.digest}\n".encode())
        await requests.drain()
        digest, kind, size = (await answers.readline()).decode().split()
        if (digest, kind, int(size)) != (entry.digest, "blob", entry.size):
            raise ValueError("another object")
        return (await answers.readexactly(entry.size + 1))[:-1]


def _read_entries(listed: bytes) -> Iterator[TreeEntry]:
    for entry in listed.split(b"\0")[:-1]:
        head, _, name = entry.partition(b"\t")
        mode, _, digest, size = head.decode().split()
        path = name.decode("utf-8", errors="surrogateescape")
        kind: Kind = _KINDS.get(mode, "file")
        yield TreeEntry(kind, path, int(size) if size.isdecimal() else 0, digest, mode == "100755")


async def _exchange(process: Process, given: AsyncGenerator[bytes] | None, limit: int) -> bytes:
    """What git writes, while it reads `given`."""
    reading = asyncio.create_task(_read_output(process, limit))
    try:
        if given is not None:
            await _write(process, given)
        return await reading
    finally:
        await end_tasks(reading)


async def _write(process: Process, given: AsyncGenerator[bytes]) -> None:
    if (stdin := process.stdin) is None:
        raise RuntimeError("Git was started without a pipe.")
    # Git that ended early says by its exit code and its message why.
    async with aclosing(given):
        with suppress(BrokenPipeError, ConnectionResetError):
            async for chunk in given:
                stdin.write(chunk)
                await stdin.drain()
    stdin.close()


async def _read_output(process: Process, limit: int) -> bytes:
    output = bytearray()
    while process.stdout is not None and (chunk := await process.stdout.read(_CHUNK)):
        output += chunk
        if len(output) > limit:
            raise OutputTooLong("The repository has too many files or names.")
    await process.wait()
    return bytes(output)


def _read_lines(message: bytes) -> Sequence[str]:
    return [line for line in message.decode(errors="replace").splitlines() if line.strip()] or ["no message"]


def _find_cause(lines: Sequence[str]) -> str:
    """The line with the cause."""
    causes = [line for line in lines if line.startswith(("fatal:", "error:", "ERR"))]
    return (causes or lines)[0]


def _shorten(cause: str) -> str:
    """As one short line of printable characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in cause).split())[:MAX_CAUSE_CHARS]
