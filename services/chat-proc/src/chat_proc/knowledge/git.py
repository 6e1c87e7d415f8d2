"""The files of a knowledge space, from a git repository.

Git runs as a child process without our environment, configuration, credentials, hooks and submodules, within limits of
time, memory and disk. Nothing is checked out: files are read from the packed objects, so names, links and attributes of
a hostile repository never reach a file system.
"""

import asyncio
import math
import os
import re
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from chat_proc.knowledge.trees import Listing, ListingBuilder, SpaceRefused, TreeFile, TreeLimits
from everturn.core.cancellation import end_tasks
from everturn.core.errors import Unavailable
from everturn.core.subprocesses import kill_group, wait_for_start

FETCH_S = 120.0
RESOLVE_S = 30.0
READ_S = 30.0
"""For each object and for each listing."""
DISK_BYTES = 1024 * 1024 * 1024
MEMORY_BYTES = 2 * 1024 * 1024 * 1024
"""Address space of each process of git; a pack is mapped in small windows."""
DISK_CHECK_S = 0.25
MAX_REFS_BYTES = 256 * 1024
MAX_LISTING_BYTES = 64 * 1024 * 1024
"""About 500,000 files."""
MAX_MESSAGE_BYTES = 8 * 1024
_CHUNK = 64 * 1024
_PATH = "/usr/local/bin:/usr/bin:/bin"
_FETCHED = "refs/everturn/fetched"
_FOLDERS = "file:"
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,10}(:[0-9]{1,5})?")
_INHERITED = ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "GIT_SSL_CAINFO", "SSL_CERT_FILE")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
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
_LIMITED = 'ulimit -c 0; ulimit -f "$1"; ulimit -t "$2"; ulimit -v "$3"; shift 3; exec "$@"'
"""Limits of one file, of time and of memory, which everything that git starts inherits."""


class GitUnavailable(Unavailable):
    """The repository can't be read now."""


@dataclass(frozen=True, slots=True)
class GitRules:
    """What the operator allows. `hosts` have the form `host` or `host:port`; with `folders`, `file://` addresses name
    repositories on this machine. `environment` has the settings of a proxy and of certificates, if any."""

    hosts: frozenset[str] = frozenset()
    folders: bool = False
    environment: Mapping[str, str] = field(default_factory=lambda: {})
    resolve_s: float = RESOLVE_S
    fetch_s: float = FETCH_S
    disk_bytes: int = DISK_BYTES

    def check(self, repo: str) -> None:
        """Raise SpaceRefused unless this repository may be fetched."""
        parts = urlsplit(repo)
        if parts.scheme == "file":
            if not self.folders:
                raise SpaceRefused(
                    "Repositories on this machine are not allowed. An operator can add file: to KNOWLEDGE_GIT_HOSTS."
                )
            return
        host = parts.hostname or ""
        if (host if parts.port in (None, 443) else f"{host}:{parts.port}") not in self.hosts:
            raise SpaceRefused(
                f"The host of {repo} is not allowed. An operator can add it to KNOWLEDGE_GIT_HOSTS, which has "
                f"{', '.join(sorted(self.hosts)) or 'no hosts'} now."
            )


def read_git_rules(hosts: str, environment: Mapping[str, str]) -> GitRules:
    """The rules of a setting such as `github.com,git.example.com:8443,file:`. Raises ValueError."""
    listed = {part.strip().lower() for part in hosts.split(",") if part.strip()}
    for host in listed - {_FOLDERS}:
        if not _HOST.fullmatch(host):
            raise ValueError(f"{host[:80]!a} is neither a host, such as github.com or git.example.com:8443, nor file:")
    inherited = {name: environment[name] for name in _INHERITED if name in environment}
    return GitRules(frozenset(listed - {_FOLDERS}), folders=_FOLDERS in listed, environment=inherited)


async def resolve_commit(repo: str, ref: str, rules: GitRules) -> str:
    """The commit that a branch, a tag or HEAD has now; a commit is itself.

    Raises SpaceRefused if the repository may not be fetched or has no such name, GitUnavailable."""
    rules.check(repo)
    if _COMMIT.fullmatch(ref):
        return ref
    with tempfile.TemporaryDirectory(prefix="everturn-knowledge-") as home:
        names = [ref] if ref else ["HEAD"]
        listed = await _run_git(
            ["ls-remote", "--quiet", "--", repo, *names, f"{names[0]}^{{}}"],
            Path(home),
            rules,
            limit_s=rules.resolve_s,
            output_bytes=MAX_REFS_BYTES,
        )
    commits = dict(_read_pairs(listed))
    for name in ("HEAD",) if not ref else (f"refs/heads/{ref}", f"refs/tags/{ref}", ref):
        if commit := commits.get(f"{name}^{{}}") or commits.get(name):
            return commit
    raise SpaceRefused(f"The repository {repo} has no branch or tag {ref}." if ref else f"{repo} has no commits.")


def _read_pairs(listed: bytes) -> Sequence[tuple[str, str]]:
    pairs = [line.split("\t") for line in listed.decode(errors="replace").splitlines()]
    return [(pair[1], pair[0]) for pair in pairs if len(pair) == 2 and _COMMIT.fullmatch(pair[0])]


class GitTree:
    """A fetched commit."""

    def __init__(
        self, folder: Path, commit: str, rules: GitRules, name: str, roots: Mapping[str, str], limits: TreeLimits
    ) -> None:
        self._folder = folder
        self._commit = commit
        self._rules = rules
        self._name = name
        self._roots = roots
        self._limits = limits
        self._objects: Process | None = None

    async def list_files(self) -> Listing:
        below = [] if "" in self._roots.values() else sorted(set(self._roots.values()))
        listed = await _run_git(
            ["ls-tree", "-r", "-z", "--long", "--full-tree", self._commit, "--", *below],
            self._folder,
            self._rules,
            limit_s=READ_S,
            output_bytes=MAX_LISTING_BYTES,
        )
        return await asyncio.to_thread(self._read_listing, listed)

    async def read(self, file: TreeFile) -> bytes:
        try:
            async with asyncio.timeout(READ_S):
                return await self._read_object(file)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as error:
            await self.close()
            raise GitUnavailable(f"Git can't read the file {file.origin!a}.") from error

    async def close(self) -> None:
        objects, self._objects = self._objects, None
        if objects is not None:
            await kill_group(objects)

    def _read_listing(self, listed: bytes) -> Listing:
        listing = ListingBuilder(self._name, self._roots, self._limits)
        for entry in listed.split(b"\0")[:-1]:
            head, _, name = entry.partition(b"\t")
            mode, _, digest, size = head.split()
            origin = name.decode("utf-8", errors="surrogateescape")
            if mode == b"160000":
                listing.skip(origin, "it is a submodule")
            elif mode == b"120000":
                listing.skip(origin, "it is a link")
            elif paths := listing.try_accept(origin, int(size)):
                listing.add(paths, origin, int(size), digest.decode())
        return listing.build()

    async def _read_object(self, file: TreeFile) -> bytes:
        if self._objects is None:
            self._objects = await _start_git(["cat-file", "--batch"], self._folder, self._rules, stdin=PIPE)
        requests, answers = self._objects.stdin, self._objects.stdout
        if requests is None or answers is None:
            raise RuntimeError("Git was started without pipes.")
        requests.write(f"{file.digest}\n".encode())
        await requests.drain()
        digest, kind, size = (await answers.readline()).decode().split()
        if (digest, kind, int(size)) != (file.digest, "blob", file.size):
            raise ValueError("another object")
        return (await answers.readexactly(file.size + 1))[:-1]


@asynccontextmanager
async def open_git_tree(
    repo: str,
    ref: str,
    commit: str,
    rules: GitRules,
    *,
    name: str,
    roots: Mapping[str, str],
    limits: TreeLimits,
) -> AsyncGenerator[GitTree]:
    """Fetch `commit`, which `resolve_commit` found for `ref`, without its history. Raises SpaceRefused, GitUnavailable,
    also if the ref has moved on."""
    rules.check(repo)
    with tempfile.TemporaryDirectory(prefix="everturn-knowledge-") as home:
        folder = Path(home)
        await _run_git(["init", "--quiet", "--bare", "--template="], folder, rules, limit_s=READ_S)
        fetch = ["fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"]
        await _run_git([*fetch, "--", repo, f"+{ref or 'HEAD'}:{_FETCHED}"], folder, rules, limit_s=rules.fetch_s)
        fetched = await _run_git(["rev-parse", "--verify", f"{_FETCHED}^{{commit}}"], folder, rules, limit_s=READ_S)
        if fetched.decode().strip() != commit:
            raise GitUnavailable(f"{ref or 'HEAD'} of {repo} has moved on meanwhile.")
        tree = GitTree(folder, commit, rules, name, roots, limits)
        try:
            yield tree
        finally:
            await tree.close()


async def _run_git(
    command: Sequence[str], folder: Path, rules: GitRules, *, limit_s: float, output_bytes: int = MAX_REFS_BYTES
) -> bytes:
    """The output of git. Raises SpaceRefused if the repository or the output is too large, GitUnavailable for all other
    failures."""
    messages = folder / "messages.txt"
    with messages.open("wb") as stderr:
        process = await _start_git(command, folder, rules, stderr=stderr.fileno())
    running = asyncio.create_task(_read_output(process, output_bytes))
    left = iter(range(int(limit_s / DISK_CHECK_S) + 1))
    try:
        while not running.done():
            await asyncio.wait({running}, timeout=DISK_CHECK_S)
            if await asyncio.to_thread(_measure, folder) > rules.disk_bytes:
                raise SpaceRefused(f"The repository needs more than {rules.disk_bytes // 2**20} MiB.")
            if next(left, None) is None:
                raise GitUnavailable(f"Git {command[0]} took more than {limit_s:g} s.")
        output = running.result()
    finally:
        await end_tasks(running)
        await kill_group(process, has_just_ended=True)
    if process.returncode:
        with messages.open("rb") as stderr:
            raise GitUnavailable(f"Git {command[0]} failed: {_shorten(stderr.read(MAX_MESSAGE_BYTES))}")
    return output


async def _read_output(process: Process, limit: int) -> bytes:
    output = bytearray()
    while process.stdout is not None and (chunk := await process.stdout.read(_CHUNK)):
        output += chunk
        if len(output) > limit:
            raise SpaceRefused("The repository has too many files or names.")
    await process.wait()
    return bytes(output)


async def _start_git(
    command: Sequence[str], folder: Path, rules: GitRules, *, stdin: int = DEVNULL, stderr: int = DEVNULL
) -> Process:
    git = shutil.which("git", path=_PATH)
    if git is None:
        raise GitUnavailable("Git is not installed on this worker.")
    options = [part for setting in _CONFIGURATION for part in ("-c", setting)]
    limits = [2 * rules.disk_bytes // 512, math.ceil(2 * rules.fetch_s), MEMORY_BYTES // 1024]
    environment = {
        **rules.environment,
        "PATH": _PATH,
        "HOME": str(folder),
        "LC_ALL": "C",
        "GIT_DIR": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "SSH_ASKPASS": "/bin/false",
        "GIT_ALLOW_PROTOCOL": "https:file" if rules.folders else "https",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
    }
    try:
        return await wait_for_start(
            asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", _LIMITED, "git", *map(str, limits), git, *options, "--literal-pathspecs", *command),
                stdin=stdin,
                stdout=PIPE,
                stderr=stderr,
                cwd=folder,
                env=environment,
                start_new_session=True,
            ),
            kill_group,
        )
    except OSError as error:
        raise GitUnavailable(f"Git can't be started: {error.strerror}.") from error


def _measure(folder: Path) -> int:
    return sum(_size(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _shorten(message: bytes) -> str:
    """The line with the cause."""
    lines = [line for line in message.decode(errors="replace").splitlines() if line.strip()] or ["no message"]
    causes = [line for line in lines if line.startswith(("fatal:", "error:", "ERR"))]
    return " ".join((causes or lines)[0].split())[:300]
