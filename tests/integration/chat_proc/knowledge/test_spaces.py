"""Spaces in Postgres, from folders and repositories: built once, kept up to date, continued after a crash."""

import asyncio
import errno
import io
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import docx
import pytest
import structlog
from helpers.git_server import GitServer
from helpers.git_sources import GitSource
from structlog.testing import capture_logs

from chat_proc.git import GitRules
from chat_proc.knowledge import trees
from chat_proc.knowledge.config import KnowledgeSpace
from chat_proc.knowledge.reader import KnowledgeReader
from chat_proc.knowledge.spaces import KnowledgePorts, Pauses, open_knowledge
from chat_proc.knowledge.trees import TreeLimits
from chat_proc.tools.web.pages import PageReader
from everturn.core.errors import EverturnError, NotFound, Unavailable
from everturn.knowledge.postgres_store import PostgresKnowledgeStore
from everturn.memory.embedder import EmbedderUnavailable, Vector
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn.postgres.pool import Database, open_database
from everturn_local.servers.databases import DatabaseUrls

_numbers = itertools.count(1)
LIMIT_S = 30.0
SOON = Pauses(folder_s=0.05, git_s=0.2, waiting_s=0.05, failed_s=0.05, renew_s=0.5)


class CountingEmbedder:
    """Counts texts; fails while it is down, and never answers while it hangs."""

    name, lexical_only = HashedEmbedder.name, True

    def __init__(self) -> None:
        self.texts = 0
        self.down = False
        self.hangs_after: int | None = None
        self._inner = HashedEmbedder()

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        if self.down:
            raise EmbedderUnavailable("It is down.")
        if self.hangs_after is not None and self.texts >= self.hangs_after:
            await asyncio.Event().wait()
        self.texts += len(texts)
        return await self._inner.embed(texts)


@pytest.fixture
async def worker(database: DatabaseUrls) -> AsyncIterator[Database]:
    async with open_database(database.worker, pool_size=8, application_name="test-worker") as opened:
        yield opened


@dataclass
class Desk:
    """A bundle in a folder, and what a worker has."""

    folder: Path
    bundle_id: str
    embedder: CountingEmbedder
    ports: KnowledgePorts

    def write(self, path: str, content: str | bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    @asynccontextmanager
    async def open(self, *, has_folder: bool = True, **section: Any) -> AsyncGenerator[KnowledgeReader]:
        folder = self.folder if has_folder else None
        async with open_knowledge(self.bundle_id, [KnowledgeSpace(**section)], folder, self.ports) as knowledge:
            assert knowledge is not None
            yield knowledge


@pytest.fixture
async def desk(worker: Database, tmp_path: Path) -> AsyncIterator[Desk]:
    embedder, converter = CountingEmbedder(), PageReader()
    store = PostgresKnowledgeStore(worker, lease_s=2.0, retry_s=0.1)
    ports = KnowledgePorts(store, embedder, converter, GitRules(folders=True), TreeLimits(), SOON)
    folder = tmp_path / "bundle"
    (folder / "knowledge").mkdir(parents=True)
    yield Desk(folder, f"bundle-{next(_numbers)}", embedder, ports)
    await converter.close()


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not await check():  # noqa: ASYNC110 - another worker sends no notification
            await asyncio.sleep(0.05)


async def until_found(knowledge: KnowledgeReader, path: str, text: str = "") -> None:
    async def is_found() -> bool:
        with suppress(NotFound, Unavailable):
            return text in (await knowledge.load(path)).text
        return False

    await until(is_found)


async def is_refused(knowledge: KnowledgeReader, why: str) -> bool:
    try:
        await knowledge.load("a.md")
    except EverturnError as error:
        return why in str(error)
    return False


async def test_the_folder_of_a_bundle_is_searched_and_follows_changes(desk: Desk) -> None:
    desk.write("knowledge/docs/architecture.md", "# Architecture\n\n## Storage\n\nThe zephyr database holds regions.\n")
    desk.write("knowledge/notes.txt", "Lunch is at noon.")

    async with desk.open() as knowledge:
        await until_found(knowledge, "docs/architecture.md")
        (best, *_) = (await knowledge.search("zephyr database", 5)).found
        desk.write("knowledge/notes.txt", "Lunch is at one.")
        (desk.folder / "knowledge/docs/architecture.md").unlink()
        await until_found(knowledge, "notes.txt", "one")
        with pytest.raises(NotFound):
            await knowledge.load("docs/architecture.md")

    assert (best.path, best.title, best.heading) == ("docs/architecture.md", "Architecture", "Architecture > Storage")
    assert (best.start_line, best.end_line, best.untrusted) == (3, 5, False)
    assert best.text == "## Storage\n\nThe zephyr database holds regions."


async def test_a_private_repository_is_read_with_a_secret_of_the_bundle(
    desk: Desk, source: GitSource, git_server: GitServer, tmp_path: Path
) -> None:
    source.write("a.md", "# A\n\nA zephyr.\n")
    source.commit()
    git_server.password = "tok-0123456789"
    secrets = tmp_path / "secrets/bundles" / desk.bundle_id
    secrets.mkdir(parents=True)
    certificates = {"GIT_SSL_CAINFO": str(git_server.certificate)}
    rules = GitRules(frozenset({git_server.host}), environment=certificates, secrets_dir=tmp_path / "secrets")
    desk.ports = replace(desk.ports, git=rules)

    async with desk.open(repo=git_server.url("source/.git"), token="b:git-token") as knowledge:
        await until(lambda: is_refused(knowledge, "secret b:git-token of the bundle"))
        (secrets / "git-token").write_text("tok-0123456789")
        await until_found(knowledge, "a.md", "zephyr")


async def test_the_section_of_the_seeds_reads_a_repository(desk: Desk, source: GitSource) -> None:
    source.write("app/docs/architecture.md", "# Architecture\n\nHow it is built.\n")
    source.write("app/src/main.py", "def serve_zephyr():\n    pass\n")
    source.write("app/deploy/compose.yml", "services: {}\n")
    source.write("app/tests/test_main.py", "assert True\n")
    source.commit()
    roots = {f"{name}_root": f"app/{name}" for name in ("docs", "src", "deploy", "tests")}

    async with desk.open(repo=source.url, ref="main", validate_refs=True, **roots) as knowledge:
        await until_found(knowledge, "docs/architecture.md")
        document = await knowledge.load("src/main.py")
        (found, *_) = (await knowledge.search("serve_zephyr", 1)).found
        source.write("app/docs/architecture.md", "# Architecture\n\nHow it was built.\n")
        source.commit()
        await until_found(knowledge, "docs/architecture.md", "was built")
        for path in ("deploy/compose.yml", "tests/test_main.py"):
            await knowledge.load(path)

    assert document.untrusted, "others can write to a repository"
    assert (found.path, found.untrusted) == ("src/main.py", True)


async def test_documents_are_converted_and_others_are_skipped_with_reasons(desk: Desk) -> None:
    written: Any = docx.Document()
    written.add_heading("Refunds", 1)
    written.add_paragraph("A refund takes nine days.")
    saved = io.BytesIO()
    written.save(saved)
    page = "".join(f"<p>Paragraph {n} about the tides of the sea and the moon that makes them.</p>" for n in range(9))
    desk.write("knowledge/refunds.docx", saved.getvalue())
    desk.write("knowledge/tides.html", f"<html><head><title>Tides</title></head><body><article>{page}</article></body>")
    desk.write("knowledge/damaged.pdf", b"%PDF-1.4 nothing")
    desk.write("knowledge/picture.png", b"\x89PNG\0\0")
    desk.write("knowledge/large.md", "x" * (1024 * 1024 + 1))
    (desk.folder / "knowledge/link.md").symlink_to("/etc/passwd")
    (desk.folder / "knowledge/links").symlink_to("/etc")

    with structlog.testing.capture_logs() as logs:
        async with desk.open() as knowledge:
            await until_found(knowledge, "refunds.docx", "nine days")
            (found, *_) = (await knowledge.search("refund", 1)).found
            tides = await knowledge.load("tides.html")
            for path in ("damaged.pdf", "picture.png", "large.md", "link.md", "links/passwd"):
                with pytest.raises(NotFound):
                    await knowledge.load(path)

    (skipped,) = [line for line in logs if line["event"] == "Files are not part of a knowledge space"]
    assert sorted(skipped["first"]) == [
        "knowledge/damaged.pdf: The PDF is damaged.",
        "knowledge/large.md: it has more than 1024 KiB",
        "knowledge/link.md: it is a link that leads out of the folder",
        "knowledge/links: it is a link that leads out of the folder",
        "knowledge/picture.png: it is not text",
    ]
    assert (found.path, found.heading) == ("refunds.docx", "Refunds")
    assert (tides.title, "Paragraph 8" in tides.text) == ("Tides", True)


async def test_a_volume_of_kubernetes_is_read(desk: Desk) -> None:
    desk.write("knowledge/..2026_01_01/docs/a.md", "zebra")
    (desk.folder / "knowledge/..data").symlink_to("..2026_01_01")
    (desk.folder / "knowledge/docs").symlink_to("..data/docs")
    (desk.folder / "knowledge/loop").symlink_to(".")

    async with desk.open() as knowledge:
        await until_found(knowledge, "docs/a.md", "zebra")
        desk.write("knowledge/..2026_01_02/docs/a.md", "lion")
        (desk.folder / "knowledge/..new").symlink_to("..2026_01_02")
        (desk.folder / "knowledge/..new").rename(desk.folder / "knowledge/..data")
        await until_found(knowledge, "docs/a.md", "lion")
        with pytest.raises(NotFound):
            await knowledge.load("loop/docs/a.md")


async def test_broken_links_are_logged(desk: Desk) -> None:
    desk.write("knowledge/a.md", "[b](b.md) [c](docs/c.md#part) [web](https://example.org) [gone](docs/gone.md)\n")
    desk.write("knowledge/b.md", "[top](/knowledge/a.md) [folder](docs) [outside](../../x.md)\n")
    desk.write("knowledge/docs/c.md", "# Part\n[up](../a.md)\n```\n[code](none.md)\n```\n")

    with structlog.testing.capture_logs() as logs:
        async with desk.open() as knowledge:
            await until_found(knowledge, "a.md")
    with structlog.testing.capture_logs() as silent:
        desk.write("knowledge/d.md", "new")
        async with desk.open(validate_refs=False) as knowledge:
            await until_found(knowledge, "d.md")

    (broken,) = [line for line in logs if line["event"] == "Documents have broken links"]
    assert broken["first"] == ["knowledge/a.md:1: docs/gone.md", "knowledge/b.md:1: ../../x.md"]
    assert not [line for line in silent if "links" in line["event"]]


async def test_only_changed_documents_are_encoded_again(desk: Desk) -> None:
    for n in range(20):
        desk.write(f"knowledge/{n}.md", f"document {n}")
    async with desk.open() as knowledge:
        await until_found(knowledge, "19.md")
        assert desk.embedder.texts == 20
        desk.write("knowledge/0.md", "changed")
        await until_found(knowledge, "0.md", "changed")

    assert desk.embedder.texts == 21


async def test_many_workers_build_a_space_once(desk: Desk) -> None:
    for n in range(30):
        desk.write(f"knowledge/{n}.md", f"document {n}")

    async with desk.open() as one, desk.open() as two, desk.open() as three:
        for knowledge in (one, two, three):
            await until_found(knowledge, "29.md")

    assert desk.embedder.texts == 30


async def test_a_worker_without_the_folder_reads_what_others_have_built(desk: Desk) -> None:
    desk.write("knowledge/a.md", "zebra")

    async with desk.open(has_folder=False) as reading:
        with pytest.raises(Unavailable, match="is being built"):
            await reading.load("a.md")
        async with desk.open() as building:
            await until_found(building, "a.md")
        assert (await reading.load("a.md")).text == "zebra"


async def test_the_next_worker_continues_a_build_that_was_killed(desk: Desk) -> None:
    for n in range(300):
        desk.write(f"knowledge/{n:03}.md", f"document {n}")
    desk.embedder.hangs_after = 128
    async with desk.open() as knowledge:

        async def is_half_built() -> bool:
            return desk.embedder.texts >= 128

        await until(is_half_built)
        with pytest.raises(Unavailable, match=r"is being built \(\d+ documents so far\)"):
            await knowledge.search("document", 5)
    desk.embedder.hangs_after = None
    before = desk.embedder.texts

    async with desk.open() as knowledge:
        await until_found(knowledge, "299.md")

    assert desk.embedder.texts - before <= 300 - 64, "only what was not saved is encoded again"


async def test_the_old_version_serves_while_the_new_one_can_not_be_built(desk: Desk, source: GitSource) -> None:
    source.write("a.md", "old zebra")
    source.commit()
    async with desk.open(repo=source.url) as knowledge:
        await until_found(knowledge, "a.md")
    desk.embedder.down = True
    source.write("a.md", "new zebra")
    source.commit()

    async with desk.open(repo=source.url) as knowledge:
        await asyncio.sleep(0.5)
        hits = await knowledge.search("zebra", 1)
        assert [each.text for each in hits.found] == ["old zebra"]
        assert hits.words_only == "It is down."
        desk.embedder.down = False
        await until_found(knowledge, "a.md", "new")


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"repo": "https://git.internal.example/a.git"}, "is not allowed"),
        ({"docs_root": "knowledge/none"}, "'knowledge/none' does not exist or has no files"),
        ({"repo": "file:///nowhere/at/all.git"}, "Git ls-remote failed"),
    ],
)
async def test_the_model_learns_why_there_is_no_knowledge(desk: Desk, section: dict[str, str], reason: str) -> None:
    async with desk.open(**section) as knowledge:

        async def has_failed() -> bool:
            with suppress(NotFound):
                try:
                    await knowledge.load("docs/a.md")
                except Unavailable as error:
                    return reason in error.detail
            return False

        await until(has_failed)


async def test_files_that_the_worker_may_not_read_are_left_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    open_inside = trees._open_inside  # pyright: ignore[reportPrivateUsage]

    def refuse(folder: Path, path: str, flags: int) -> int:
        # The mode of a file does not stop tests that run as root.
        if path in ("knowledge/secret", "knowledge/b.md"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return open_inside(folder, path, flags)

    monkeypatch.setattr(trees, "_open_inside", refuse)
    for name in ("a.md", "b.md", "secret/c.md"):
        desk.write(f"knowledge/{name}", name)

    with capture_logs() as logs:
        async with desk.open() as knowledge:
            await until_found(knowledge, "a.md")
            for path in ("b.md", "secret/c.md"):
                with pytest.raises(NotFound):
                    await knowledge.load(path)

    (skipped,) = [log for log in logs if log["event"] == "Files are not part of a knowledge space"]
    reasons = [f"knowledge/{name}: it can't be read: permission denied" for name in ("b.md", "secret")]
    assert sorted(skipped["first"]) == reasons


@pytest.mark.parametrize(("failing", "reported"), [(1, 0), (3, 1)])
async def test_a_folder_that_can_not_be_read_once_is_no_problem(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, failing: int, reported: int
) -> None:
    open_inside = trees._open_inside  # pyright: ignore[reportPrivateUsage]
    looks = itertools.count(1)

    def fail_at_first(folder: Path, path: str, flags: int) -> int:
        # Each look ends at its first failure.
        if next(looks) <= failing:
            raise OSError(errno.EIO, "Input/output error")
        return open_inside(folder, path, flags)

    monkeypatch.setattr(trees, "_open_inside", fail_at_first)
    desk.write("knowledge/a.md", "a")

    with capture_logs() as logs:
        async with desk.open() as knowledge:
            await until_found(knowledge, "a.md")

    errors = [log["error"] for log in logs if log["event"] == "Could not update a knowledge space"]
    assert errors == ["The folder of the knowledge space can't be read: Input/output error."] * reported


async def test_a_missing_document_is_answered_with_similar_ones(desk: Desk) -> None:
    desk.write("knowledge/docs/guides/backup.md", "a")
    desk.write("knowledge/docs/architecture.md", "b")

    async with desk.open() as knowledge:
        await until_found(knowledge, "docs/architecture.md")
        with pytest.raises(NotFound, match=r"ks:docs/architecture\.md"):
            await knowledge.load("docs/architectur.md")
        with pytest.raises(NotFound, match=r"ks:docs/guides/backup\.md"):
            await knowledge.load("backup.md")
        with pytest.raises(NotFound, match=r"Similar documents: ks:docs/guides/backup\.md\."):
            await knowledge.load("docs/guides")


async def test_a_failed_build_is_stored_with_its_reason(
    desk: Desk, database: DatabaseUrls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat_proc.knowledge.building.MAX_PASSAGES", 100)
    desk.write("knowledge/many.md", "\n".join(f"# {line}\nx" for line in range(10_000)))

    async with desk.open() as knowledge, connecting(database.superuser) as connection:

        async def has_failed() -> bool:
            row = await connection.fetchrow(
                "SELECT state, error FROM knowledge_space WHERE bundle_id = $1", desk.bundle_id
            )
            return row is not None and row["state"] == "failed"

        await until(has_failed)
        with pytest.raises(Unavailable, match="could not be built: The documents have more than 100 passages"):
            await knowledge.search("x", 1)
        monkeypatch.undo()
        await until_found(knowledge, "many.md")


@asynccontextmanager
async def connecting(url: str) -> AsyncGenerator[Any]:
    connection: Any = await asyncpg.connect(url)  # pyright: ignore[reportUnknownMemberType] it has no types
    try:
        yield connection
    finally:
        await connection.close()
