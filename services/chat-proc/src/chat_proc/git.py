"""Git repositories that bundles and their knowledge come from.

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
from base64 import b64encode
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, StringConstraints

from everturn.core.cancellation import acquire_in_thread, end_tasks
from everturn.core.errors import Invalid, Unavailable
from everturn.core.logging import Redactor
from everturn.core.refs import check_path
from everturn.core.settings import BadSecrets, load_bundle_secrets
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
_DEFAULT_USER = "x-access-token"
"""The name that goes with a token where the host accepts any."""
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,10}(:[0-9]{1,5})?")
_INHERITED = ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "GIT_SSL_CAINFO", "SSL_CERT_FILE")
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}")
_REFERENCE = re.compile(r"b:[A-Za-z][A-Za-z0-9_.-]{0,99}")
_TOKEN = re.compile(r"(?:[^\x00-\x20:\x7f]{1,200}:)?[^\x00-\x20\x7f]{1,4000}")
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


class RepositoryRefused(Invalid):
    """The repository can't be used: a sentence for author and operator."""


class GitUnavailable(Unavailable):
    """The repository can't be read now."""


def _check_url(url: str) -> str:
    if not url:
        return url
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) or parts.scheme == "file"
        port = parts.port
    except ValueError as error:
        raise ValueError("is not an address") from error
    if parts.scheme not in ("https", "file") or not named or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("must be the https:// address of a git repository, or empty")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment or port == 0:
        raise ValueError("must not contain a user, a password, a query or a fragment")
    return url


def _check_ref(ref: str) -> str:
    if ref and (not _REF.fullmatch(ref) or ".." in ref or ref.endswith(("/", ".lock")) or "//" in ref):
        raise ValueError("must be the name of a branch or a tag, or a commit")
    return ref


def _check_folder(folder: str) -> str:
    folder = folder.rstrip("/")
    if folder:
        try:
            check_path(folder)
        except Invalid as invalid:
            raise ValueError(invalid.detail.rstrip(".")) from invalid
    return folder


def _check_token(token: str) -> str:
    if token and not _REFERENCE.fullmatch(token):
        raise ValueError("must be b:<name>, the name of a secret of the bundle")
    return token


RepositoryUrl = Annotated[str, StringConstraints(max_length=1_000), AfterValidator(_check_url)]
GitRef = Annotated[str, AfterValidator(_check_ref)]
"""A branch, a tag or a commit with all its digits; empty for the default branch."""
RepositoryFolder = Annotated[str, AfterValidator(_check_folder)]
"""A folder in the repository; empty for all of it."""
TokenReference = Annotated[str, AfterValidator(_check_token)]
"""Names a secret that is a token, or user:token; empty for a public repository."""


@dataclass(frozen=True, slots=True)
class Repository:
    """Where and what to fetch, and the secret of the bundle that it needs."""

    url: str
    ref: str = ""
    token: str = ""
    bundle_id: str = ""

    @property
    def is_pinned(self) -> bool:
        """Whether it names a commit, so that it never changes."""
        return bool(_COMMIT.fullmatch(self.ref))


@dataclass(frozen=True, slots=True)
class GitRules:
    """What the operator allows. `hosts` have the form `host` or `host:port`; with `folders`, `file://` addresses name
    repositories on this machine. `environment` has the settings of a proxy and of certificates, if any; `secrets_dir`
    is the folder with the secrets of bundles."""

    hosts: frozenset[str] = frozenset()
    folders: bool = False
    environment: Mapping[str, str] = field(default_factory=lambda: {})
    secrets_dir: Path | None = None
    resolve_s: float = RESOLVE_S
    fetch_s: float = FETCH_S
    disk_bytes: int = DISK_BYTES

    def check(self, url: str) -> None:
        """Raise RepositoryRefused unless this repository may be fetched."""
        parts = urlsplit(url)
        if parts.scheme == "file":
            if not self.folders:
                raise RepositoryRefused(
                    "Repositories on this machine are not allowed. An operator can add file: to GIT_HOSTS."
                )
            return
        host = parts.hostname or ""
        if (host if parts.port in (None, 443) else f"{host}:{parts.port}") not in self.hosts:
            raise RepositoryRefused(
                f"The host of {url} is not allowed. An operator can add it to GIT_HOSTS, which has "
                f"{', '.join(sorted(self.hosts)) or 'no hosts'} now."
            )

    async def load_token(self, repository: Repository) -> str:
        """The token, read again each time because it can be replaced; empty for a public repository. Raises
        BadSecrets."""
        if not repository.token:
            return ""
        bundle_id, name = repository.bundle_id, repository.token.removeprefix("b:")
        secrets = await asyncio.to_thread(load_bundle_secrets, self.secrets_dir, bundle_id)
        if not (token := secrets.get(name)):
            raise BadSecrets(
                f"The secret b:{name} of the bundle {bundle_id} is not set. Write it into the file "
                f"bundles/{bundle_id}/{name} of SECRETS_DIR."
            )
        if not _TOKEN.fullmatch(token):
            raise BadSecrets(
                f"The secret b:{name} of the bundle {bundle_id} must be a token or user:token, in one line without "
                "blanks."
            )
        return token


def read_git_rules(hosts: str, environment: Mapping[str, str], secrets_dir: Path | None = None) -> GitRules:
    """The rules of a setting such as `github.com,git.example.com:8443,file:`. Raises ValueError."""
    listed = {part.strip().lower() for part in hosts.split(",") if part.strip()}
    for host in listed - {_FOLDERS}:
        if not _HOST.fullmatch(host):
            raise ValueError(f"{host[:80]!a} is neither a host, such as github.com or git.example.com:8443, nor file:")
    inherited = {name: environment[name] for name in _INHERITED if name in environment}
    return GitRules(
        frozenset(listed - {_FOLDERS}), folders=_FOLDERS in listed, environment=inherited, secrets_dir=secrets_dir
    )


async def resolve_commit(repository: Repository, rules: GitRules) -> str:
    """The commit that a branch, a tag or HEAD has now; a commit is itself.

    Raises RepositoryRefused if the repository may not be fetched or has no such name, GitUnavailable, BadSecrets."""
    url, ref = repository.url, repository.ref
    rules.check(url)
    if repository.is_pinned:
        return ref
    async with _open_folder() as folder:
        names = [ref] if ref else ["HEAD"]
        listed = await _run_git(
            ["ls-remote", "--quiet", "--", url, *names, f"{names[0]}^{{}}"],
            folder,
            rules,
            limit_s=rules.resolve_s,
            token=await rules.load_token(repository),
        )
    commits = dict(_read_pairs(listed))
    for name in ("HEAD",) if not ref else (f"refs/heads/{ref}", f"refs/tags/{ref}", ref):
        if commit := commits.get(f"{name}^{{}}") or commits.get(name):
            return commit
    raise RepositoryRefused(f"The repository {url} has no branch or tag {ref}." if ref else f"{url} has no commits.")


def _read_pairs(listed: bytes) -> Sequence[tuple[str, str]]:
    pairs = [line.split("\t") for line in listed.decode(errors="replace").splitlines()]
    return [(pair[1], pair[0]) for pair in pairs if len(pair) == 2 and _COMMIT.fullmatch(pair[0])]


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """`path` is as the repository has it: in a hostile one, bytes that are not UTF-8 are surrogates, and a part can be
    `..`."""

    kind: Literal["file", "link", "submodule"]
    path: str
    size: int
    digest: str


class FetchedCommit:
    """The files of a commit that was fetched."""

    def __init__(self, folder: Path, commit: str, rules: GitRules) -> None:
        self._folder = folder
        self._commit = commit
        self._rules = rules
        self._objects: Process | None = None

    async def list_entries(self, folders: Sequence[str] = ()) -> Iterator[TreeEntry]:
        """What is below these folders, or in the whole commit: read it in a thread, and only as far as needed. Raises
        RepositoryRefused, GitUnavailable."""
        listed = await _run_git(
            ["ls-tree", "-r", "-z", "--long", "--full-tree", self._commit, "--", *folders],
            self._folder,
            self._rules,
            limit_s=READ_S,
            output_bytes=MAX_LISTING_BYTES,
        )
        return _read_entries(listed)

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
            self._objects = await _start_git(["cat-file", "--batch"], self._folder, self._rules, stdin=PIPE)
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
        if mode == "160000":
            yield TreeEntry("submodule", path, 0, digest)
        else:
            yield TreeEntry("link" if mode == "120000" else "file", path, int(size), digest)


@asynccontextmanager
async def fetch_commit(repository: Repository, commit: str, rules: GitRules) -> AsyncGenerator[FetchedCommit]:
    """Fetch `commit`, which `resolve_commit` found, without its history. Raises RepositoryRefused, BadSecrets, and
    GitUnavailable, also if the ref has moved on."""
    url, ref = repository.url, repository.ref or "HEAD"
    rules.check(url)
    token = await rules.load_token(repository)
    async with _open_folder() as folder:
        await _run_git(["init", "--quiet", "--bare", "--template="], folder, rules, limit_s=READ_S)
        fetch = ["fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"]
        fetch += ["--", url, f"+{ref}:{_FETCHED}"]
        await _run_git(fetch, folder, rules, limit_s=rules.fetch_s, token=token)
        fetched = await _run_git(["rev-parse", "--verify", f"{_FETCHED}^{{commit}}"], folder, rules, limit_s=READ_S)
        if fetched.decode().strip() != commit:
            raise GitUnavailable(f"{ref} of {url} has changed during the fetch.")
        found = FetchedCommit(folder, commit, rules)
        try:
            yield found
        finally:
            await found.close()


@asynccontextmanager
async def _open_folder() -> AsyncGenerator[Path]:
    """A new folder. It is removed in a thread: a fetched repository can have a gigabyte."""
    folder = await acquire_in_thread(partial(tempfile.mkdtemp, prefix="everturn-git-"), os.rmdir)
    try:
        yield Path(folder)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _run_git(
    command: Sequence[str],
    folder: Path,
    rules: GitRules,
    *,
    limit_s: float,
    output_bytes: int = MAX_REFS_BYTES,
    token: str = "",
) -> bytes:
    """The output of git. Raises RepositoryRefused if the repository or the output is too large, GitUnavailable for all
    other failures."""
    messages = folder / "messages.txt"
    with messages.open("wb") as stderr, _pipe_credential(token) as credential:
        process = await _start_git(command, folder, rules, stderr=stderr.fileno(), credential=credential)
    running = asyncio.create_task(_read_output(process, output_bytes))
    left = iter(range(int(limit_s / DISK_CHECK_S) + 1))
    try:
        while not running.done():
            await asyncio.wait({running}, timeout=DISK_CHECK_S)
            if await asyncio.to_thread(_measure, folder) > rules.disk_bytes:
                raise RepositoryRefused(f"The repository needs more than {rules.disk_bytes // 2**20} MiB.")
            if next(left, None) is None:
                raise GitUnavailable(f"Git {command[0]} took more than {limit_s:g} s.")
        output = running.result()
    finally:
        await end_tasks(running)
        await kill_group(process, has_just_ended=True)
    if process.returncode:
        with messages.open("rb") as stderr:
            cause = _find_cause(stderr.read(MAX_MESSAGE_BYTES))
        if not token and "could not read Username" in cause:
            raise GitUnavailable("The repository does not exist, or it is private and needs a token.")
        raise GitUnavailable(f"Git {command[0]} failed: {_hide(cause, token)}")
    return output


async def _read_output(process: Process, limit: int) -> bytes:
    output = bytearray()
    while process.stdout is not None and (chunk := await process.stdout.read(_CHUNK)):
        output += chunk
        if len(output) > limit:
            raise RepositoryRefused("The repository has too many files or names.")
    await process.wait()
    return bytes(output)


@contextmanager
def _pipe_credential(token: str) -> Generator[int | None]:
    """A pipe from which git reads user and password once the host asks for them. So the token is in no argument,
    variable or file, and only the host of the repository gets it: redirects are not followed."""
    if not token:
        yield None
        return
    user, password = _split_token(token)
    read_end, write_end = os.pipe()
    try:
        os.write(write_end, f"username={user}\npassword={password}\n".encode())
        os.close(write_end)
        yield read_end
    finally:
        os.close(read_end)


def _split_token(token: str) -> tuple[str, str]:
    user, colon, password = token.partition(":")
    return (user, password) if colon else (_DEFAULT_USER, token)


async def _start_git(
    command: Sequence[str],
    folder: Path,
    rules: GitRules,
    *,
    stdin: int = DEVNULL,
    stderr: int = DEVNULL,
    credential: int | None = None,
) -> Process:
    git = shutil.which("git", path=_PATH)
    if git is None:
        raise GitUnavailable("Git is not installed on this worker.")
    helper = [] if credential is None else [f"credential.helper=!give() {{ cat /dev/fd/{credential}; }}; give"]
    options = [part for setting in (*_CONFIGURATION, *helper) for part in ("-c", setting)]
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
        "GIT_ASKPASS": "",
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
                pass_fds=() if credential is None else (credential,),
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


def _find_cause(message: bytes) -> str:
    """The line with the cause."""
    lines = [line for line in message.decode(errors="replace").splitlines() if line.strip()] or ["no message"]
    causes = [line for line in lines if line.startswith(("fatal:", "error:", "ERR"))]
    return (causes or lines)[0]


def _hide(cause: str, token: str) -> str:
    """The cause without the token, which the host may have sent back, as one short line of printable characters."""
    user, password = _split_token(token)
    forms = (token, password, b64encode(f"{user}:{password}".encode()).decode()) if token else ()
    hidden = Redactor(forms).redact(cause)
    return " ".join("".join(char if char.isprintable() else " " for char in hidden).split())[:300]
