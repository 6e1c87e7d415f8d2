"""Repositories are fetched by a confined git, which checks nothing out; hostile ones are refused or harmless."""

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from helpers.git_sources import GitSource

from chat_proc.git import GitRules, Repository, resolve_commit
from chat_proc.knowledge.git import GitTree, open_git_tree
from chat_proc.knowledge.trees import SpaceRefused, TreeLimits
from everturn.git import GitUnavailable, RepositoryRefused

RULES = GitRules(folders=True)
ALL = {"": ""}


@asynccontextmanager
async def fetched(
    source: GitSource,
    *,
    ref: str = "",
    rules: GitRules = RULES,
    roots: Mapping[str, str] = ALL,
    limits: TreeLimits | None = None,
) -> AsyncGenerator[GitTree]:
    commit = await resolve_commit(Repository(source.url, ref), rules)
    limits = limits or TreeLimits()
    async with open_git_tree(Repository(source.url, ref), commit, rules, name="", roots=roots, limits=limits) as tree:
        yield tree


async def test_files_below_the_roots_are_listed_and_read(source: GitSource) -> None:
    source.write("app/docs/architecture.md", "# Architecture\n")
    source.write("app/src/main.py", "print()\n")
    source.write("other.md", "no")
    source.write("app/docs/.hidden/a.md", "no")
    source.commit()

    async with fetched(source, roots={"docs": "app/docs", "src": "app/src"}) as tree:
        listing = await tree.list_files()
        texts = [await tree.read(file) for file in listing.files]

    assert [file.path for file in listing.files] == ["docs/architecture.md", "src/main.py"]
    assert texts == [b"# Architecture\n", b"print()\n"]
    assert listing.skipped.count == 0


async def test_branches_tags_and_commits_can_be_chosen(source: GitSource) -> None:
    source.write("a.md", "one")
    first = source.commit()
    source.git("tag", "--annotate", "v1", "--message=v1")
    source.git("branch", "topic/one")
    source.write("a.md", "two")
    second = source.commit()

    for ref, commit, text in (
        ("", second, b"two"),
        ("v1", first, b"one"),
        ("topic/one", first, b"one"),
        (first, first, b"one"),
    ):
        assert await resolve_commit(Repository(source.url, ref), RULES) == commit
        async with fetched(source, ref=ref) as tree:
            (file,) = (await tree.list_files()).files
            assert await tree.read(file) == text


async def test_a_name_that_does_not_exist_is_refused(source: GitSource) -> None:
    source.write("a.md", "one")
    source.commit()

    with pytest.raises(RepositoryRefused, match="no branch or tag nightly"):
        await resolve_commit(Repository(source.url, "nightly"), RULES)
    with pytest.raises(GitUnavailable, match="ls-remote failed"):
        await resolve_commit(Repository(f"{source.url}-missing"), RULES)
    async with fetched(source, roots={"docs": "docs"}) as tree:
        with pytest.raises(SpaceRefused, match="'docs' does not exist or has no files"):
            await tree.list_files()


async def test_a_branch_that_moves_meanwhile_is_fetched_later(source: GitSource) -> None:
    source.write("a.md", "one")
    source.commit()
    commit = await resolve_commit(Repository(source.url, "main"), RULES)
    source.write("a.md", "two")
    source.commit()

    with pytest.raises(GitUnavailable, match="has changed during the fetch"):
        async with open_git_tree(
            Repository(source.url, "main"), commit, RULES, name="", roots=ALL, limits=TreeLimits()
        ):
            pass


@pytest.mark.parametrize(
    ("repo", "rules"),
    [
        ("https://git.internal.example/a.git", GitRules(frozenset({"github.com"}))),
        ("https://github.com:8443/a.git", GitRules(frozenset({"github.com"}))),
        ("file:///etc", GitRules(frozenset({"github.com"}))),
    ],
)
async def test_only_allowed_hosts_are_asked(repo: str, rules: GitRules) -> None:
    with pytest.raises(RepositoryRefused, match="GIT_HOSTS"):
        await resolve_commit(Repository(repo), rules)
    with pytest.raises(RepositoryRefused, match="GIT_HOSTS"):
        async with open_git_tree(Repository(repo), "0" * 40, rules, name="", roots=ALL, limits=TreeLimits()):
            pass


async def test_links_submodules_and_names_that_leave_the_tree_are_skipped(source: GitSource, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("secret")
    source.write("docs/good.md", "good")
    (source.folder / "docs/link.md").symlink_to(secret)
    (source.folder / "docs/folder").symlink_to(tmp_path)
    source.write(".gitmodules", f'[submodule "sub"]\npath = docs/sub\nurl = file://{tmp_path}\n')
    first = source.commit()
    source.git("update-index", "--add", "--cacheinfo", f"160000,{first},docs/sub")
    for name in (b"docs/back\\slash.md", b"docs/line\nbreak.md", b"docs/\xff\xfe.md"):
        source.add_to_index("100644", name, b"hostile")
    source.commit_index()

    async with fetched(source, roots={"docs": "docs"}) as tree:
        listing = await tree.list_files()

    assert [file.path for file in listing.files] == ["docs/good.md"]
    assert sorted(each.partition(": ")[2] for each in listing.skipped.listed) == [
        "it is a link",
        "it is a link",
        "it is a submodule",
        *["its name can't be used"] * 3,
    ]


@pytest.mark.parametrize("name", [b"..", b".git", b"."])
async def test_trees_with_forged_names_reach_no_file_system(source: GitSource, name: bytes) -> None:
    blob = source.git("hash-object", "-w", "--stdin", data=b"hostile")
    entry = b"100644 " + name + b"\0" + bytes.fromhex(blob)
    tree_id = source.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", data=entry)
    docs = b"40000 docs\0" + bytes.fromhex(tree_id)
    top = source.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", data=docs)
    source.git("update-ref", "refs/heads/main", source.git("commit-tree", top, "-m", "forged"))

    async with fetched(source) as tree:
        with pytest.raises(SpaceRefused, match="has no files"):
            await tree.list_files()


async def test_no_hook_filter_or_setting_of_anybody_runs(
    source: GitSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "ran"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    for hook in ("post-checkout", "post-merge", "reference-transaction", "pre-receive", "post-update"):
        os.link(script, source.folder / ".git/hooks" / hook)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(f"[core]\n\tfsmonitor = {script}\n\thooksPath = {source.folder}/.git/hooks\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_SSH_COMMAND", str(script))
    source.write(".gitattributes", "*.md filter=evil\n")
    source.write("a.md", "one")
    source.commit()
    mark.unlink(missing_ok=True)

    async with fetched(source) as tree:
        listing = await tree.list_files()

    assert [file.path for file in listing.files] == ["a.md"]
    assert not mark.exists()


async def test_a_hundred_thousand_files_are_refused_soon(source: GitSource) -> None:
    blob = source.git("hash-object", "-w", "--stdin", data=b"same")
    index = "".join(f"100644 {blob}\tdocs/{n // 1000}/{n}.md\n" for n in range(100_000))
    source.git("update-index", "--index-info", data=index.encode())
    source.commit_index()

    async with fetched(source) as tree:
        with pytest.raises(SpaceRefused, match="more than 5000 files"):
            await tree.list_files()


async def test_a_repository_that_is_too_large_is_refused(
    source: GitSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.write("large.bin", os.urandom(3 * 1024 * 1024))
    source.write("a.md", "one")
    source.commit()
    folder = tmp_path / "fetched"
    await asyncio.to_thread(folder.mkdir)
    monkeypatch.setattr("tempfile.tempdir", str(folder))

    with pytest.raises((RepositoryRefused, GitUnavailable)):
        async with fetched(source, rules=GitRules(folders=True, disk_bytes=1024 * 1024)):
            pass

    assert os.listdir(folder) == []


async def test_large_and_many_bytes_are_refused(source: GitSource) -> None:
    source.write("large.md", "x" * 2_000)
    source.write("small.md", "x" * 900)
    source.commit()

    async with fetched(source, limits=TreeLimits(text_bytes=1_000)) as tree:
        listing = await tree.list_files()
    assert [file.path for file in listing.files] == ["small.md"]
    assert listing.skipped.listed == ["large.md: it has more than 0 KiB"]
    async with fetched(source, limits=TreeLimits(total_bytes=1_000)) as tree:
        with pytest.raises(SpaceRefused, match="together"):
            await tree.list_files()


async def test_a_host_that_does_not_answer_takes_limited_time() -> None:
    async def wait(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    silent = await asyncio.start_server(wait, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    silent_host = Repository(f"https://localhost:{port}/a.git")
    rules = GitRules(frozenset({f"localhost:{port}"}), resolve_s=0.5, fetch_s=0.5)

    async with silent:
        with pytest.raises(GitUnavailable, match=r"ls-remote took more than 0\.5 s"):
            await resolve_commit(silent_host, rules)
        with pytest.raises(GitUnavailable, match=r"fetch took more than 0\.5 s"):
            async with open_git_tree(silent_host, "0" * 40, rules, name="", roots=ALL, limits=TreeLimits()):
                pass
