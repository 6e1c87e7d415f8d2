"""Collections with real files: a worker reads, cuts and encodes them, and a person finds them with their pages."""

import asyncio
import io
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import docx
import pytest
from uploads.pdfs import pdf_of_texts

from chat_proc.knowledge.collections import CollectionIndexer, CollectionReader
from chat_proc.tools.web.pages import PageReader
from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import CollectionId, RandomIds
from everturn.files.objects import Objects
from everturn.files.opening import open_objects
from everturn.knowledge.collections import CollectionScope
from everturn.knowledge.postgres_collections import PostgresCollections
from everturn.knowledge.postgres_store import PostgresKnowledgeStore
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn.postgres.pool import Database, open_database
from everturn_local.servers.databases import DatabaseUrls
from everturn_testing.knowledge.collections import build_upload

LIMIT_S = 60.0
_numbers = itertools.count(1)
_ids = RandomIds(lambda: 1_772_366_400_000)
_DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def build_docx(*paragraphs: str) -> bytes:
    document, data = docx.Document(), io.BytesIO()
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    document.save(data)
    return data.getvalue()


@dataclass
class Shelf:
    """A person with one collection, and a worker that indexes it."""

    owner: Principal
    collection_id: CollectionId
    objects: Objects
    book: PostgresCollections
    indexer: CollectionIndexer
    reader: CollectionReader

    async def put(self, name: str, data: bytes, mime: str = "text/plain") -> None:
        upload = build_upload(self.collection_id, name, data, mime=mime)
        await self.objects.save(upload.object_key, data)
        await self.book.add_documents(self.owner, self.collection_id, [upload])

    async def until_indexed(self) -> dict[str, str]:
        """Run a worker until nothing waits; the errors by name."""
        running = asyncio.create_task(self.indexer.run())
        try:
            async with asyncio.timeout(LIMIT_S):
                while any(each.waiting for each in await self.book.load_all(self.owner)):  # noqa: ASYNC110 - no signal
                    await asyncio.sleep(0.05)
        finally:
            running.cancel()
        return {each.name: each.error for each in await self.book.load_documents(self.owner, self.collection_id)}


@pytest.fixture
async def worker(database: DatabaseUrls) -> AsyncIterator[Database]:
    async with open_database(database.worker, pool_size=8, application_name="test-worker") as opened:
        yield opened


@pytest.fixture
async def shelf(database: DatabaseUrls, worker: Database, tmp_path: Path) -> AsyncIterator[Shelf]:
    owner, collection_id, embedder, converter = (
        Principal("acme", f"shelf-{next(_numbers)}", "ann"),
        _ids.collection(),
        HashedEmbedder(),
        PageReader(),
    )
    index, store = PostgresCollections(worker), partial(PostgresKnowledgeStore, worker)
    async with open_database(database.ingress, pool_size=2, application_name="test-ingress") as ingress:
        book = PostgresCollections(ingress, settle_s=0)
        await book.create(owner, collection_id, "Contracts", CollectionScope.USER)
        with open_objects(tmp_path.as_uri()) as objects:
            yield Shelf(
                owner,
                collection_id,
                objects,
                book,
                CollectionIndexer(index, store, embedder, converter, objects, every_s=0.05),
                CollectionReader(index, store, embedder),
            )
            await book.delete(owner, collection_id)
    await converter.close()


async def test_a_pdf_is_found_with_its_page(shelf: Shelf) -> None:
    await shelf.put(
        "lease.pdf", pdf_of_texts("The rent is due monthly.", "The zephyr clause ends it."), "application/pdf"
    )
    await shelf.put("notes.txt", "Größe: 80 m²".encode("windows-1252"), "text/plain; charset=windows-1252")
    await shelf.put("letter.docx", build_docx("The landlord is Vermeer."), _DOCX)

    errors = await shelf.until_indexed()

    (page, *_) = (await shelf.reader.search(shelf.owner, "zephyr clause", "", 5)).hits.found
    (notes, *_) = (await shelf.reader.search(shelf.owner, "Größe", "contracts", 5)).hits.found
    (letter, *_) = (await shelf.reader.search(shelf.owner, "landlord Vermeer", "", 5)).hits.found
    assert errors == {"lease.pdf": "", "letter.docx": "", "notes.txt": ""}
    assert (page.title, page.heading) == ("lease.pdf", "page 2")
    assert notes.text == "Größe: 80 m²"
    assert letter.title == "letter.docx"
    whole = await shelf.reader.load(shelf.owner, page.path)
    assert whole.text.split("\n")[page.start_line - 1] == "[page 2]"


async def test_unreadable_documents_have_reasons_and_keep_no_others_away(shelf: Shelf) -> None:
    await shelf.put("damaged.pdf", b"%PDF-1.4 nothing", "application/pdf")
    await shelf.put("large.txt", b"x" * 1_048_577)
    await shelf.put("fine.txt", b"The zephyr is fine.")

    errors = await shelf.until_indexed()

    assert errors == {
        "damaged.pdf": "The PDF is damaged.",
        "fine.txt": "",
        "large.txt": "it is a text of more than 1024 KiB",
    }
    found = (await shelf.reader.search(shelf.owner, "zephyr", "", 5)).hits.found
    assert [each.title for each in found] == ["fine.txt"]


async def test_a_search_says_what_is_missing(shelf: Shelf) -> None:
    with pytest.raises(NotFound, match="no collections with documents"):
        await shelf.reader.search(shelf.owner, "zephyr", "", 5)
    await shelf.put("fine.txt", b"The zephyr is fine.")
    with pytest.raises(NotFound, match=r"no collection with this title\. There are: Contracts"):
        await shelf.reader.search(shelf.owner, "zephyr", "Recipes", 5)

    early = await shelf.reader.search(shelf.owner, "zephyr", "", 5)
    await shelf.until_indexed()
    late = await shelf.reader.search(shelf.owner, "zephyr", "", 5)

    assert (early.waiting, len(early.hits.found), late.waiting, len(late.hits.found)) == (1, 0, 0, 1)
    with pytest.raises(NotFound, match="no such document"):
        await shelf.reader.load(shelf.owner, f"{shelf.collection_id}/other.txt")
    stranger = Principal("acme", shelf.owner.project, "bob")
    with pytest.raises(NotFound, match="no such document"):
        await shelf.reader.load(stranger, f"{shelf.collection_id}/fine.txt")


async def test_text_that_somebody_else_shares_is_untrusted(shelf: Shelf) -> None:
    shared = _ids.collection()
    await shelf.book.create(shelf.owner, shared, "Handbook", CollectionScope.PROJECT)
    upload = build_upload(shared, "rules.txt", b"The zephyr rules.")
    await shelf.objects.save(upload.object_key, b"The zephyr rules.")
    await shelf.book.add_documents(shelf.owner, shared, [upload])
    await shelf.until_indexed()
    bob = Principal(shelf.owner.tenant, shelf.owner.project, "bob")

    for reader, untrusted in ((shelf.owner, False), (bob, True)):
        (found,) = (await shelf.reader.search(reader, "zephyr", "", 5)).hits.found
        document = await shelf.reader.load(reader, f"{shared}/rules.txt")
        assert (found.untrusted, document.untrusted) == (untrusted, untrusted)
    await shelf.book.delete(shelf.owner, shared)


async def test_a_worker_that_dies_leaves_the_rest_to_the_next(shelf: Shelf, database: DatabaseUrls) -> None:
    await shelf.put("fine.txt", b"The zephyr is fine.")
    async with open_database(database.worker, pool_size=1, application_name="dying") as lost:
        assert await PostgresCollections(lost).try_claim(HashedEmbedder.name) is not None
    connection: Any = await asyncpg.connect(database.superuser)  # pyright: ignore[reportUnknownMemberType] no types
    await connection.execute("UPDATE collection SET due_at = clock_timestamp()")
    await connection.close()

    assert await shelf.until_indexed() == {"fine.txt": ""}
