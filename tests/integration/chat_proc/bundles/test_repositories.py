"""Bundles from git: fetched, followed and kept by a worker over a real registry; hostile content is refused."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest
from helpers.git_server import GitServer
from helpers.git_sources import GitSource
from pydantic import ValidationError

from chat_proc.agent.kit import BundleKit, TurnKit
from chat_proc.bundles import repositories as limits
from chat_proc.bundles.bundle import Bundle
from chat_proc.bundles.folders import BundleFolders
from chat_proc.bundles.repositories import BundleRepositories, BundleTable, FetchPauses, open_repositories
from chat_proc.bundles.versions import BundleLibrary
from chat_proc.git import GitRules
from everturn.bundles.postgres import PostgresBundles
from everturn.bundles.registry import BundleListing
from everturn.core.metrics import BUNDLE_FETCHES
from everturn.postgres.pool import Database, open_database
from everturn_local.servers.databases import DatabaseUrls

SOON = FetchPauses(usual_s=0.05, failed_s=0.05, max_s=0.1)
LIMIT_S = 20.0


@pytest.fixture
async def worker(database: DatabaseUrls) -> AsyncIterator[Database]:
    superuser = await asyncpg.connect(database.superuser)
    await superuser.execute("DELETE FROM bundle")
    await superuser.close()
    async with open_database(database.worker, pool_size=8, application_name="test-worker") as opened:
        yield opened


@dataclass
class Worker:
    """A worker's bundles from git."""

    repositories: BundleRepositories
    folders: BundleFolders
    versions: BundleLibrary[BundleKit]
    registry: PostgresBundles

    async def load_desk(self) -> BundleListing:
        await self.versions.refresh()
        return next(listing for listing in await self.registry.load_listed() if listing.id == "desk")

    async def until(self, is_seen: Callable[[BundleListing], bool]) -> BundleListing:
        async with asyncio.timeout(LIMIT_S):
            while not is_seen(listing := await self.load_desk()):  # noqa: ASYNC110 - a look finds what is new
                await asyncio.sleep(0.05)
        return listing

    async def until_text(self, text: str) -> Bundle:
        await self.until(lambda listing: listing.description == text)
        found = self.folders.scan()["desk"].bundle
        assert found is not None
        return found

    async def until_error(self) -> str:
        return (await self.until(lambda listing: bool(listing.error))).error


@asynccontextmanager
async def open_kit(bundle: Bundle) -> AsyncGenerator[BundleKit]:
    yield BundleKit(cast(TurnKit, None), bundle_id=bundle.id, digest=bundle.digest)


@asynccontextmanager
async def open_worker(
    database: Database, url: str, rules: GitRules | None = None, **table: Any
) -> AsyncGenerator[Worker]:
    tables = {"desk": BundleTable(git=url, **table)}
    registry = PostgresBundles(database)
    rules = rules or GitRules(folders=True)
    async with open_repositories(tables, rules, pauses=SOON) as repositories:
        folders = BundleFolders(None, tables, "default", list_fetched=repositories.list)
        library = BundleLibrary(registry, folders, open_kit, BundleKit(cast(TurnKit, None)))
        await repositories.wait_fetched()
        await library.start()
        yield Worker(repositories, folders, library, registry)
        await library.close()


def write(source: GitSource, text: str, folder: str = "", **files: str) -> str:
    source.write(f"{folder}bundle.toml", f'id = "desk"\ndescription = "{text}"\n')
    for name, content in files.items():
        source.write(f"{folder}{name.replace('__', '/')}.md", content)
    return source.commit()


async def test_a_bundle_follows_its_branch(worker: Database, source: GitSource) -> None:
    write(source, "outside")
    write(source, "first", "agents/desk/", instructions="Be brief.", knowledge__a="one", tests__a="no")
    source.write("agents/desk/.hidden/a.md", "no")
    source.commit()

    async with open_worker(worker, source.url, ref="main", folder="agents/desk", title="Our desk") as desk:
        first = await desk.until_text("first")
        folder = desk.folders.find_folder("desk")
        assert folder is not None and (folder / "knowledge/a.md").read_text() == "one"
        write(source, "second", "agents/desk/", knowledge__a="two")
        second = await desk.until_text("second")
        documents = (folder / "knowledge/a.md").read_text()
        root = folder.parent

    assert (first.manifest.title, first.manifest.instructions) == ("Our desk", "Be brief.")
    assert dict(second.files) == {} and documents == "two"
    assert not root.exists()


async def test_a_tag_and_a_commit_stay_what_they_are(worker: Database, source: GitSource) -> None:
    commit = write(source, "first")
    source.git("tag", "v1")
    write(source, "second")

    for ref in ("v1", commit):
        async with open_worker(worker, source.url, ref=ref) as desk:
            await desk.until_text("first")


async def test_content_that_cannot_be_used_keeps_the_version_that_serves(worker: Database, source: GitSource) -> None:
    write(source, "first")
    async with open_worker(worker, source.url) as desk:
        await desk.until_text("first")
        before = BUNDLE_FETCHES.labels("refused")._value.get()
        source.write("bundle.toml", "id = ")
        broken = source.commit()
        error = await desk.until_error()
        listing = await desk.load_desk()
        write(source, "third")
        await desk.until_text("third")
        repaired = await desk.until(lambda listing: not listing.error)

    assert error.startswith(f"{source.url} can't be used at the commit {broken[:12]}: bundle.toml: Invalid value")
    assert (listing.description, listing.is_ready) == ("first", True)
    assert repaired.is_ready and BUNDLE_FETCHES.labels("refused")._value.get() > before


async def test_a_host_that_is_down_costs_no_bundle_even_at_the_start(
    worker: Database, source: GitSource, git_server: GitServer
) -> None:
    write(source, "first")
    url = git_server.url("source/.git")
    rules = GitRules(frozenset({git_server.host}), environment={"GIT_SSL_CAINFO": str(git_server.certificate)})
    async with open_worker(worker, url, rules) as desk:
        stored = await desk.until_text("first")
        git_server.is_down = True
        assert "could not be fetched: Git ls-remote failed" in await desk.until_error()
        assert (await desk.load_desk()).is_ready

    async with open_worker(worker, url, rules) as restarted:
        assert "503" in await restarted.until_error()
        async with restarted.versions.use("desk", None) as kit:
            assert kit.digest == stored.digest
        write(source, "second")
        git_server.is_down = False
        await restarted.until_text("second")
        assert (await restarted.until(lambda listing: not listing.error)).is_ready


@pytest.mark.parametrize("is_pinned", [False, True])
async def test_a_private_bundle_needs_its_token(
    worker: Database, source: GitSource, git_server: GitServer, tmp_path: Path, is_pinned: bool
) -> None:
    commit = write(source, "first")
    git_server.password = "tok-0123456789"
    (tmp_path / "secrets/bundles/desk").mkdir(parents=True)
    rules = GitRules(
        frozenset({git_server.host}),
        environment={"GIT_SSL_CAINFO": str(git_server.certificate)},
        secrets_dir=tmp_path / "secrets",
    )

    async with open_worker(
        worker, git_server.url("source/.git"), rules, ref=commit if is_pinned else "", token="b:git-token"
    ) as desk:
        assert "The secret b:git-token of the bundle desk is not set" in await desk.until_error()
        assert not (await desk.load_desk()).is_ready
        (tmp_path / "secrets/bundles/desk/git-token").write_text("tok-0123456789")
        found = await desk.until_text("first")

    assert set(git_server.credentials) == {"x-access-token:tok-0123456789"}
    assert "tok-0123456789" not in found.pack().manifest


def add_link(source: GitSource) -> None:
    (source.folder / "secret.md").symlink_to("/etc/passwd")
    source.commit()


def add_submodule(source: GitSource) -> None:
    source.git("update-index", "--add", "--cacheinfo", f"160000,{source.git('rev-parse', 'HEAD')},tools")
    source.commit_index()


def add_control_character(source: GitSource) -> None:
    source.add_to_index("100644", b"line\nbreak.md", b"hostile")
    source.commit_index()


def add_parent_folder(source: GitSource) -> None:
    """A tree with the name `..`, which git itself does not write."""
    blob = source.git("hash-object", "-w", "--stdin", data=b"hostile")
    inner = source.git(
        *("hash-object", "-w", "-t", "tree", "--literally", "--stdin"),
        data=b"100644 evil.md\0" + bytes.fromhex(blob),
    )
    top = source.git(
        *("hash-object", "-w", "-t", "tree", "--literally", "--stdin"),
        data=b"40000 ..\0" + bytes.fromhex(inner),
    )
    source.git("update-ref", "refs/heads/main", source.git("commit-tree", top, "-m", "forged"))


def add_file_with_the_name_of_a_folder(source: GitSource) -> None:
    blob = bytes.fromhex(source.git("hash-object", "-w", "--stdin", data=b"hostile"))
    inner = source.git("mktree", data=f"100644 blob {blob.hex()}\ta.py\n".encode())
    top = source.git(
        *("hash-object", "-w", "-t", "tree", "--literally", "--stdin"),
        data=b"100644 tools\0" + blob + b"40000 tools\0" + bytes.fromhex(inner),
    )
    source.git("update-ref", "refs/heads/main", source.git("commit-tree", top, "-m", "forged"))


def move_elsewhere(source: GitSource) -> None:
    source.git("rm", "--quiet", "bundle.toml")
    source.write("tests/bundle.toml", 'id = "desk"')
    source.commit()


def add_many_files(source: GitSource) -> None:
    blob = source.git("hash-object", "-w", "--stdin", data=b"same")
    index = "".join(f"100644 {blob}\tfiles/{n // 1000}/{n}.md\n" for n in range(100_000))
    source.git("update-index", "--index-info", data=index.encode())
    source.commit_index()


def add_large_file(source: GitSource) -> None:
    source.write("large.bin", b"x" * (17 * 1024 * 1024))
    source.commit()


def rename_bundle(source: GitSource) -> None:
    source.write("bundle.toml", 'id = "other"\n')
    source.commit()


def remove_manifest(source: GitSource) -> None:
    source.git("rm", "--quiet", "bundle.toml")
    source.write("a.md", "text")
    source.commit()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (add_link, "'secret.md' is a link. A bundle from git can have only files."),
        (add_submodule, "'tools' is a submodule."),
        (add_control_character, r"'line\nbreak.md' is not a usable name for a file."),
        (add_parent_folder, "'../evil.md' is not a usable name for a file."),
        (add_file_with_the_name_of_a_folder, "'tools/a.py' has the name of another file."),
        (move_elsewhere, "It has no files."),
        (add_many_files, "There are more than 2000 files, or they have more than 16 MiB in total."),
        (add_large_file, "There are more than 2000 files, or they have more than 16 MiB in total."),
        (rename_bundle, "It has the bundle other. Write the table of the configuration as bundles.other."),
        (remove_manifest, "The folder desk has no bundle.toml."),
    ],
)
async def test_hostile_content_is_refused(
    worker: Database, source: GitSource, change: Callable[[GitSource], None], message: str
) -> None:
    write(source, "first")
    async with open_worker(worker, source.url) as desk:
        await desk.until_text("first")
        change(source)
        error = await desk.until_error()
        assert message in error
        assert (await desk.load_desk()).description == "first"


async def test_a_repository_that_is_too_large_is_refused(worker: Database, source: GitSource) -> None:
    write(source, "first")
    async with open_worker(worker, source.url, GitRules(folders=True, disk_bytes=1024 * 1024)) as desk:
        await desk.until_text("first")
        source.write("tests/large.bin", os.urandom(3 * 1024 * 1024))
        source.commit()
        assert "The repository needs more than 1 MiB" in await desk.until_error()
        root = cast(Path, desk.folders.find_folder("desk")).parent
        assert len([each for each in root.iterdir() if each.is_dir() and not each.is_symlink()]) <= 2


async def test_documents_that_no_space_can_have_are_left_out(
    worker: Database, source: GitSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_DOCUMENT_BYTES", 100)
    write(source, "first", knowledge__small="small", knowledge__large="x" * 200)
    (source.folder / "knowledge/link.md").symlink_to("/etc/passwd")
    source.commit()

    async with open_worker(worker, source.url) as desk:
        await desk.until_text("first")
        folder = cast(Path, desk.folders.find_folder("desk"))
        assert [path.name for path in (folder / "knowledge").iterdir()] == ["small.md"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"git": "ext::sh -c evil"}, "must be the https:// address"),
        ({"git": "git://host/a.git"}, "must be the https:// address"),
        ({"git": "ssh://git@host/a.git"}, "must be the https:// address"),
        ({"git": "--upload-pack=evil"}, "must be the https:// address"),
        ({"git": "https://me:hunter2@host/a.git"}, "must not contain a user"),
        ({"git": "https://host/a.git", "ref": "--evil"}, "name of a branch"),
        ({"git": "https://host/a.git", "folder": "../a"}, "must be relative"),
        ({"git": "https://host/a.git", "token": "ghp_hunter2"}, "must be b:<name>"),
        ({"git": "file:///a", "token": "b:git"}, "token belongs to a repository with an https:// address"),
        ({"folder": "a"}, "Set git too"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused(table: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        BundleTable.model_validate(table)

    problems = str(refused.value.errors(include_input=False, include_url=False))
    assert message in problems and "hunter2" not in problems


async def test_a_host_that_is_not_allowed_is_named(worker: Database) -> None:
    async with open_worker(worker, "https://127.0.0.1/a.git", GitRules(frozenset({"github.com"}))) as desk:
        error = await desk.until_error()

    assert "The host of https://127.0.0.1/a.git is not allowed. An operator can add it to GIT_HOSTS" in error


def test_looks_become_rarer_while_they_fail() -> None:
    pauses = FetchPauses()

    def find_range(failures: int) -> tuple[float, float]:
        chosen = [pauses.choose(failures) for _ in range(200)]
        return min(chosen), max(chosen)

    for failures, expected_s in ((0, 60), (1, 15), (2, 30), (5, 240), (10, 900), (10_000, 900)):
        low_s, high_s = find_range(failures)
        assert 0.75 * expected_s <= low_s < high_s <= 1.25 * expected_s
