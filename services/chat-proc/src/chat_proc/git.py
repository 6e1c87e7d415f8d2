"""Git repositories that bundles and their knowledge come from: which ones an operator allows, and how they are
fetched."""

import asyncio
import os
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, StringConstraints

from everturn.core.errors import Invalid
from everturn.core.logging import Redactor
from everturn.core.refs import check_path
from everturn.core.settings import BadSecrets, load_bundle_secrets
from everturn.git import (
    DISK_BYTES,
    RUN_S,
    GitCommit,
    GitFolder,
    GitLimits,
    GitUnavailable,
    RepositoryRefused,
    open_git_folder,
)

RESOLVE_S = 30.0
NEWEST_COMMITS = 20
"""Of a branch, among which a commit is looked for that a lost call may have pushed."""
_FETCHED = "refs/everturn/fetched/"
_FOLDERS = "file:"
_DEFAULT_USER = "x-access-token"
"""The name that goes with a token where the host accepts any."""
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,10}(:[0-9]{1,5})?")
_INHERITED = ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "GIT_SSL_CAINFO", "SSL_CERT_FILE")
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}")
_BRANCHES = re.compile(r"[A-Za-z0-9*][A-Za-z0-9._/+*-]{0,199}")
_REFUSED = re.compile(r"^ ! \[.*\((.+)\)$")
_REFERENCE = re.compile(r"b:[A-Za-z][A-Za-z0-9_.-]{0,99}")
_TOKEN = re.compile(r"(?:[^\x00-\x20:\x7f]{1,200}:)?[^\x00-\x20\x7f]{1,4000}")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


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


def _check_branches(pattern: str) -> str:
    if pattern and (not _BRANCHES.fullmatch(pattern) or not is_branch(pattern.replace("*", "x"))):
        raise ValueError("must be the name of a branch, in which * stands for any characters except a slash")
    return pattern


def is_branch(name: str) -> bool:
    """Whether a branch can have this name, without characters that need quotes somewhere."""
    parts = name.split("/")
    return (
        bool(_REF.fullmatch(name))
        and ".." not in name
        and not _COMMIT.fullmatch(name)
        and all(part and not part.startswith((".", "-")) and not part.endswith((".", ".lock")) for part in parts)
        and name != "HEAD"
    )


def matches_branch(name: str, pattern: str) -> bool:
    """Whether a pattern of branches allows this name."""
    return bool(re.fullmatch("[^/]*".join(map(re.escape, pattern.split("*"))), name))


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
BranchPattern = Annotated[str, AfterValidator(_check_branches)]
"""Names of branches, in which * stands for any characters except a slash; empty for none."""
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
    fetch_s: float = RUN_S
    disk_bytes: int = DISK_BYTES

    @property
    def limits(self) -> GitLimits:
        protocols = "https:file" if self.folders else "https"
        return GitLimits(protocols, self.environment, self.disk_bytes, self.fetch_s)

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
    token = await rules.load_token(repository)
    async with open_git_folder(rules.limits) as folder:
        names = [ref] if ref else ["HEAD"]
        command = ["ls-remote", "--quiet", "--", url, *names, f"{names[0]}^{{}}"]
        listed = await _ask_host(folder, command, token, limit_s=rules.resolve_s)
    commits = dict(_read_pairs(listed))
    for name in ("HEAD",) if not ref else (f"refs/heads/{ref}", f"refs/tags/{ref}", ref):
        if commit := commits.get(f"{name}^{{}}") or commits.get(name):
            return commit
    raise RepositoryRefused(f"The repository {url} has no branch or tag {ref}." if ref else f"{url} has no commits.")


def _read_pairs(listed: bytes) -> Sequence[tuple[str, str]]:
    pairs = [line.split("\t") for line in listed.decode(errors="replace").splitlines()]
    return [(pair[1], pair[0]) for pair in pairs if len(pair) == 2 and _COMMIT.fullmatch(pair[0])]


@asynccontextmanager
async def fetch_commit(repository: Repository, commit: str, rules: GitRules) -> AsyncGenerator[GitCommit]:
    """Fetch `commit`, which `resolve_commit` found, without its history. Raises RepositoryRefused, BadSecrets, and
    GitUnavailable, also if the ref has moved on."""
    rules.check(repository.url)
    async with open_git_folder(rules.limits) as folder:
        await folder.init()
        await fetch_into(folder, repository, commit, rules)
        found = GitCommit(folder, commit)
        try:
            yield found
        finally:
            await found.close()


async def fetch_into(folder: GitFolder, repository: Repository, commit: str, rules: GitRules) -> None:
    """Fetch `commit` of the repository's ref without its history. Raises RepositoryRefused, BadSecrets, and
    GitUnavailable, also if the ref has moved on."""
    url, ref = repository.url, repository.ref or "HEAD"
    rules.check(url)
    token = await rules.load_token(repository)
    fetch = ["fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"]
    fetched_ref = f"{_FETCHED}{commit}"
    fetch += ["--", url, f"+{ref}:{fetched_ref}"]
    await _ask_host(folder, fetch, token, limit_s=rules.fetch_s)
    fetched = await folder.run(["rev-parse", "--verify", f"{fetched_ref}^{{commit}}"])
    if fetched.decode().strip() != commit:
        raise GitUnavailable(f"{ref} of {url} has changed during the fetch.")


async def find_branch(repository: Repository, branch: str, rules: GitRules) -> str:
    """The commit of a branch; empty if there is no such branch. Raises RepositoryRefused, BadSecrets,
    GitUnavailable."""
    rules.check(repository.url)
    token, name = await rules.load_token(repository), f"refs/heads/{branch}"
    async with open_git_folder(rules.limits) as folder:
        command = ["ls-remote", "--quiet", "--", repository.url, name]
        listed = await _ask_host(folder, command, token, limit_s=rules.resolve_s)
    return dict(_read_pairs(listed)).get(name, "")


async def has_commit(repository: Repository, branch: str, commit: str, rules: GitRules) -> bool:
    """Whether a commit is among the newest commits of a branch. Raises RepositoryRefused, BadSecrets,
    GitUnavailable."""
    rules.check(repository.url)
    token, name = await rules.load_token(repository), f"{_FETCHED}branch"
    async with open_git_folder(rules.limits) as folder:
        await folder.init()
        fetch = ["fetch", "--quiet", f"--depth={NEWEST_COMMITS}", "--no-tags", "--no-recurse-submodules"]
        fetch += ["--no-write-fetch-head", "--", repository.url, f"+refs/heads/{branch}:{name}"]
        await _ask_host(folder, fetch, token, limit_s=rules.fetch_s)
        listed = await folder.run(["rev-list", f"--max-count={10 * NEWEST_COMMITS}", name])
    return commit in listed.decode().split()


async def push(
    folder: GitFolder, repository: Repository, commit: str, branch: str, expected: str, rules: GitRules
) -> None:
    """Make `commit`, which continues `expected`, the newest one of a branch that is at `expected`, or does not exist if
    that is empty. Raises GitUnavailable with the sentence of the server if it refuses or does not answer,
    RepositoryRefused, BadSecrets."""
    rules.check(repository.url)
    token, name = await rules.load_token(repository), f"refs/heads/{branch}"
    command = ["push", "--quiet", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no"]
    # The server compares, too: it gets the commit that the branch has to have.
    command += [f"--force-with-lease={name}:{expected}", "--", repository.url, f"{commit}:{name}"]
    await _ask_host(folder, command, token, limit_s=rules.fetch_s, find_cause=_find_refusal)


def _find_refusal(lines: Sequence[str]) -> str:
    """What a server says about a push that it refuses: its own sentences, and the reason in brackets."""
    said = [line.removeprefix("remote:").strip() for line in lines if line.startswith("remote:")]
    why = [found[1] for line in lines if (found := _REFUSED.search(line))]
    causes = [line for line in lines if line.startswith(("fatal:", "error:"))]
    words = [each for each in (*said, *why) if any(char.isalnum() for char in each)]
    return " | ".join(dict.fromkeys(words)) or (causes or lines)[0]


async def _ask_host(
    folder: GitFolder,
    command: Sequence[str],
    token: str,
    *,
    limit_s: float,
    find_cause: Callable[[Sequence[str]], str] | None = None,
) -> bytes:
    """The output of a command that asks another host. Raises RepositoryRefused, GitUnavailable."""
    with _pipe_credential(token) as credential:
        try:
            return await folder.run(
                command,
                limit_s=limit_s,
                credential=credential,
                hide=lambda message: _hide(message, token),
                find_cause=find_cause,
            )
        except GitUnavailable as error:
            if not token and "could not read Username" in error.detail:
                missing = "The repository does not exist, or it is private and needs a token."
                raise GitUnavailable(missing) from error
            raise


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


def _hide(message: str, token: str) -> str:
    """The message without the token, which the host may have sent back."""
    user, password = _split_token(token)
    forms = (token, password, b64encode(f"{user}:{password}".encode()).decode()) if token else ()
    return Redactor(forms).redact(message)
