"""Private repositories over HTTPS: git gets the token by a pipe, and only the host of the repository sees it."""

import asyncio
import base64
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.git_server import GitServer, serve_git
from helpers.git_sources import GitSource

from chat_proc.git import GitRules, Repository, fetch_commit, resolve_commit
from everturn.core.settings import BadSecrets
from everturn.git import GitUnavailable

TOKEN = "tok-hunter2-0123456789"


@pytest.fixture
def rules(git_server: GitServer, tmp_path: Path) -> GitRules:
    set_secret(tmp_path, "git-token", TOKEN)
    return GitRules(
        frozenset({git_server.host}),
        environment={"GIT_SSL_CAINFO": str(git_server.certificate)},
        secrets_dir=tmp_path / "secrets",
    )


def set_secret(folder: Path, name: str, value: str) -> None:
    secrets = folder / "secrets/bundles/desk"
    secrets.mkdir(parents=True, exist_ok=True)
    (secrets / name).write_text(value)


@pytest.fixture
def private(git_server: GitServer, source: GitSource) -> Repository:
    source.write("a.md", "private words")
    source.commit()
    git_server.password = TOKEN
    return Repository(git_server.url("source/.git"), "main", "b:git-token", "desk")


async def read_all(repository: Repository, rules: GitRules) -> dict[str, bytes]:
    commit = await resolve_commit(repository, rules)
    async with fetch_commit(repository, commit, rules) as fetched:
        return {entry.path: await fetched.read(entry) for entry in [*await fetched.list_entries()]}


async def test_a_private_repository_is_read_with_its_token(
    private: Repository, rules: GitRules, git_server: GitServer, tmp_path: Path
) -> None:
    assert await read_all(private, rules) == {"a.md": b"private words"}
    assert set(git_server.credentials) == {f"x-access-token:{TOKEN}"}

    git_server.user, git_server.password = "deploy+1", "next-0123456789"
    set_secret(tmp_path, "git-token", "deploy+1:next-0123456789\n")

    assert await read_all(private, rules) == {"a.md": b"private words"}


async def test_a_public_repository_is_sent_no_token(
    private: Repository, rules: GitRules, git_server: GitServer
) -> None:
    git_server.password = ""

    assert await read_all(private, rules) == {"a.md": b"private words"}
    assert git_server.credentials == []


async def test_what_is_wrong_with_a_token_is_said_without_it(
    private: Repository, rules: GitRules, git_server: GitServer, tmp_path: Path
) -> None:
    with pytest.raises(GitUnavailable, match="does not exist, or it is private and needs a token"):
        await resolve_commit(Repository(private.url), rules)
    with pytest.raises(BadSecrets, match="secret b:other of the bundle desk is not set"):
        await resolve_commit(Repository(private.url, token="b:other", bundle_id="desk"), rules)

    git_server.password = "changed"
    with pytest.raises(GitUnavailable, match="Authentication failed") as refused:
        await resolve_commit(private, rules)
    assert TOKEN not in str(refused.value)

    set_secret(tmp_path, "git-token", f"{TOKEN}\nprotocol=https")
    with pytest.raises(BadSecrets, match="in one line without blanks") as bad:
        await resolve_commit(private, rules)
    assert TOKEN not in bad.value.detail


async def test_a_host_that_sends_the_token_back_does_not_get_it_into_messages(
    private: Repository, rules: GitRules, git_server: GitServer
) -> None:
    git_server.refuse_with = "no access for {credential}, sent as {sent}\x1b[31m"

    with pytest.raises(GitUnavailable, match=r"no access for .*\[redacted\]") as refused:
        await resolve_commit(private, rules)

    encoded = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
    assert TOKEN not in str(refused.value) and encoded not in str(refused.value) and "\x1b" not in str(refused.value)


async def test_no_argument_variable_or_file_of_git_has_the_token(
    private: Repository, rules: GitRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes = tmp_path / "homes"
    homes.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(homes))
    seen: set[bytes] = set()
    running = asyncio.create_task(read_all(private, rules))
    while not running.done():
        seen.update(await asyncio.to_thread(lambda: [*list_arguments_and_variables(), *read_files(homes)]))
        await asyncio.wait({running}, timeout=0.001)

    assert await running == {"a.md": b"private words"}
    assert any(b"ls-remote" in each for each in seen) and any(b"core.hooksPath" in each for each in seen)
    assert not [each for each in seen if TOKEN.encode() in each]


def list_arguments_and_variables() -> Iterator[bytes]:
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and (process / "comm").read_text().startswith(("git", "sh", "cat")):
                yield (process / "cmdline").read_bytes() + (process / "environ").read_bytes()


def read_files(folder: Path) -> Iterator[bytes]:
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield Path(parent, name).read_bytes()


async def test_a_redirect_is_not_followed(
    private: Repository, rules: GitRules, git_server: GitServer, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with serve_git(tmp_path, elsewhere) as target:
        git_server.redirect_to = f"https://{target.host}"

        with pytest.raises(GitUnavailable, match=r"ls-remote failed: fatal: unable to access .*: .*302"):
            await resolve_commit(private, rules)

    assert target.credentials == [] and git_server.credentials == []
