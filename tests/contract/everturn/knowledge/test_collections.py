"""Collections in Postgres: who may read and change them, what a worker indexes, and what a search finds."""

import itertools
from dataclasses import replace

import pytest

from everturn.core.errors import Conflict, NotFound
from everturn.core.identity import Principal
from everturn.core.ids import CollectionId, RandomIds
from everturn.knowledge.collections import (
    COLLECTIONS,
    MAX_COLLECTION_DOCUMENTS,
    MAX_COLLECTIONS,
    CollectionDocument,
    CollectionJob,
    CollectionScope,
)
from everturn.knowledge.postgres_collections import PostgresCollections
from everturn.knowledge.postgres_store import PostgresKnowledgeStore
from everturn.knowledge.store import KnowledgeQuery, SpaceVersion, WantedSpace
from everturn_testing.database_roles import Roles
from everturn_testing.knowledge.collections import build_upload
from everturn_testing.knowledge.store_contract import document
from everturn_testing.memory.search_contract import ENCODER

_people = itertools.count(1)
_ids = RandomIds(lambda: 1_772_366_400_000)


@pytest.fixture
def ann() -> Principal:
    return Principal("acme", f"project-{next(_people)}", "ann")


@pytest.fixture
def bob(ann: Principal) -> Principal:
    return Principal(ann.tenant, ann.project, "bob")


@pytest.fixture
def book(roles: Roles) -> PostgresCollections:
    return PostgresCollections(roles.ingress, settle_s=0)


@pytest.fixture
async def index(roles: Roles) -> PostgresCollections:
    await roles.superuser.execute("DELETE FROM collection")
    return PostgresCollections(roles.worker)


async def create(
    book: PostgresCollections, owner: Principal, *names: str, scope: CollectionScope = CollectionScope.USER
) -> CollectionId:
    collection_id = _ids.collection()
    await book.create(owner, collection_id, "Contracts", scope)
    if names:
        await book.add_documents(owner, collection_id, [build_upload(collection_id, n, n.encode()) for n in names])
    return collection_id


async def build(roles: Roles, job: CollectionJob, documents: tuple[CollectionDocument, ...]) -> SpaceVersion:
    """Index the documents, each with its name as its text."""
    version = SpaceVersion(COLLECTIONS, job.id, f"revision {job.revision}", ENCODER, untrusted=False)
    store = PostgresKnowledgeStore(roles.worker, job.owner)
    await store.want(version)
    assert await store.try_lease(version, "builder")
    for each in documents:
        found = document(f"{job.id}/{each.name}", f"text of {each.name}")
        indexed = replace(found, document=replace(found.document, digest=each.sha256))
        assert await store.save_documents(version, "builder", [indexed])
    index = PostgresCollections(roles.worker)
    await index.prune(job.id, version.signature)
    assert await store.finish(version, "builder")
    await index.finish(job, ENCODER, documents, {})
    return version


async def index_next(roles: Roles, index: PostgresCollections) -> SpaceVersion:
    job = await index.try_claim(ENCODER)
    assert job is not None
    return await build(roles, job, await index.load_job(job))


async def find(roles: Roles, who: Principal, collection_id: CollectionId) -> list[str]:
    store = PostgresKnowledgeStore(roles.worker, who)
    found = await store.search([WantedSpace(COLLECTIONS, collection_id)], KnowledgeQuery("text", None, 20))
    return sorted(each.path.partition("/")[2] for each in found)


async def test_a_new_collection_is_empty_and_nothing_waits(
    book: PostgresCollections, index: PostgresCollections, ann: Principal
) -> None:
    collection_id = await create(book, ann)

    (found,) = await book.load_all(ann)

    assert (found.id, found.title, found.owner, found.documents, found.waiting) == (
        collection_id,
        "Contracts",
        "ann",
        0,
        0,
    )
    assert await index.load_readable(ann) == ()
    assert await index.try_claim(ENCODER) is None


async def test_documents_are_found_once_they_are_indexed(
    book: PostgresCollections, index: PostgresCollections, ann: Principal, roles: Roles
) -> None:
    collection_id = await create(book, ann, "a.txt", "b.txt")
    (waiting,) = await index.load_readable(ann)

    await index_next(roles, index)

    (done,) = await index.load_readable(ann)
    assert (waiting.documents, waiting.waiting, done.waiting) == (2, 2, 0)
    assert await find(roles, ann, collection_id) == ["a.txt", "b.txt"]
    assert await index.try_claim(ENCODER) is None
    assert await index.try_claim("another-encoder") is None
    await roles.superuser.execute("UPDATE collection SET due_at = due_at - interval '300 s'")
    assert await index.try_claim(ENCODER) is None
    assert await index.try_claim("another-encoder") is not None


async def test_others_can_read_only_what_is_shared_and_change_nothing(
    book: PostgresCollections, index: PostgresCollections, ann: Principal, bob: Principal, roles: Roles
) -> None:
    own = await create(book, ann, "own.txt")
    await index_next(roles, index)
    shared = await create(book, ann, "shared.txt", scope=CollectionScope.PROJECT)
    await index_next(roles, index)
    outsider = Principal("acme", "elsewhere", "ann")

    assert [each.id for each in await book.load_all(bob)] == [shared]
    assert await find(roles, bob, own) == []
    assert await find(roles, bob, shared) == ["shared.txt"]
    assert await find(roles, outsider, shared) == []
    (document_of_ann,) = await book.load_documents(bob, shared)
    await book.check_owned(ann, shared)
    for refused in (
        book.check_owned(bob, shared),
        book.check_owned(outsider, shared),
        book.rename(bob, shared, "taken"),
        book.delete(bob, shared),
        book.delete_document(bob, shared, document_of_ann.id),
        book.add_documents(bob, shared, [build_upload(shared, "x.txt", b"x")]),
        book.load_documents(bob, own),
    ):
        with pytest.raises(NotFound):
            await refused


async def test_a_deleted_document_is_not_found_from_then_on(
    book: PostgresCollections, index: PostgresCollections, ann: Principal, roles: Roles
) -> None:
    collection_id = await create(book, ann, "a.txt", "b.txt")
    await index_next(roles, index)
    first, _ = await book.load_documents(ann, collection_id)

    key = await book.delete_document(ann, collection_id, first.id)

    assert key == first.object_key
    assert await find(roles, ann, collection_id) == ["b.txt"]
    await index_next(roles, index)
    assert await find(roles, ann, collection_id) == ["b.txt"]


async def test_a_document_that_is_deleted_while_it_is_encoded_is_not_found_either(
    book: PostgresCollections, index: PostgresCollections, ann: Principal, roles: Roles
) -> None:
    collection_id = await create(book, ann, "a.txt", "b.txt")
    job = await index.try_claim(ENCODER)
    assert job is not None
    claimed = await index.load_job(job)
    await book.delete_document(ann, collection_id, claimed[0].id)

    await build(roles, job, claimed)

    assert await find(roles, ann, collection_id) == ["b.txt"]
    again = await index.try_claim(ENCODER)
    assert again is not None
    assert again.revision > job.revision


async def test_a_file_of_the_same_name_replaces_a_document_and_an_equal_one_changes_nothing(
    book: PostgresCollections, index: PostgresCollections, ann: Principal, roles: Roles
) -> None:
    collection_id = await create(book, ann, "a.txt")
    await index_next(roles, index)
    (before,) = await book.load_documents(ann, collection_id)

    same = build_upload(collection_id, "a.txt", b"a.txt")
    equal = await book.add_documents(ann, collection_id, [same])
    assert (equal.documents, equal.unused) == ((before,), (same.object_key,))
    assert await index.try_claim(ENCODER) is None

    other = build_upload(collection_id, "a.txt", b"other")
    replaced = await book.add_documents(ann, collection_id, [other])

    assert replaced.unused == (before.object_key,)
    assert (replaced.documents[0].id, replaced.documents[0].indexed) == (before.id, False)
    assert await find(roles, ann, collection_id) == []
    await index_next(roles, index)
    assert await find(roles, ann, collection_id) == ["a.txt"]


async def test_a_deleted_collection_serves_no_more_and_its_index_is_removed(
    book: PostgresCollections, index: PostgresCollections, ann: Principal, roles: Roles
) -> None:
    collection_id = await create(book, ann, "a.txt")
    await index_next(roles, index)
    (kept,) = await book.load_documents(ann, collection_id)

    assert await book.delete(ann, collection_id) == (kept.object_key,)

    assert await find(roles, ann, collection_id) == []
    store = PostgresKnowledgeStore(roles.worker)
    while await store.delete_unwanted():
        """There may be more."""
    rows = "SELECT count(*) FROM knowledge_space WHERE name = $1"
    assert await roles.superuser.fetchval(rows, collection_id) == 0


async def test_what_a_worker_saves_of_a_deleted_collection_is_removed(
    book: PostgresCollections, index: PostgresCollections, ann: Principal, roles: Roles
) -> None:
    collection_id = await create(book, ann, "a.txt")
    job = await index.try_claim(ENCODER)
    assert job is not None
    await book.delete(ann, collection_id)
    version = SpaceVersion(COLLECTIONS, job.id, "late", ENCODER, untrusted=False)
    store = PostgresKnowledgeStore(roles.worker, kept_s=0)
    await store.want(version)
    assert await store.try_lease(version, "builder")
    assert await store.save_documents(version, "builder", [document(f"{job.id}/a.txt", "text of a.txt")])

    while await store.delete_unwanted():
        """There may be more."""

    rows = "SELECT count(*) FROM knowledge_space WHERE name = $1"
    assert await roles.superuser.fetchval(rows, collection_id) == 0


async def test_an_index_that_nobody_asks_for_is_kept(
    book: PostgresCollections, index: PostgresCollections, ann: Principal, roles: Roles
) -> None:
    collection_id = await create(book, ann, "a.txt")
    await index_next(roles, index)
    await roles.superuser.execute("UPDATE knowledge_space SET wanted_at = wanted_at - interval '300 days'")

    while await PostgresKnowledgeStore(roles.worker).delete_unwanted():
        """There may be more."""

    assert await find(roles, ann, collection_id) == ["a.txt"]


async def test_a_claimed_collection_is_due_again_if_its_worker_dies(
    book: PostgresCollections, index: PostgresCollections, ann: Principal, roles: Roles
) -> None:
    collection_id = await create(book, ann, "a.txt")

    assert await index.try_claim(ENCODER) is not None
    assert await index.try_claim(ENCODER) is None
    await roles.superuser.execute("UPDATE collection SET due_at = due_at - interval '60 s'")
    again = await index.try_claim(ENCODER)

    assert again is not None
    assert again.id == collection_id


async def test_what_can_not_be_indexed_is_tried_again_only_after_a_change(
    book: PostgresCollections, index: PostgresCollections, ann: Principal, roles: Roles
) -> None:
    collection_id = await create(book, ann, "a.txt")
    job = await index.try_claim(ENCODER)
    assert job is not None

    await index.fail(job, ENCODER, "Too many passages.")

    await roles.superuser.execute("UPDATE collection SET due_at = clock_timestamp()")
    assert await index.try_claim(ENCODER) is None
    assert [each.error for each in await book.load_all(ann)] == ["Too many passages."]
    await book.add_documents(ann, collection_id, [build_upload(collection_id, "b.txt", b"b")])
    assert await index.try_claim(ENCODER) is not None
    assert [each.error for each in await book.load_all(ann)] == [""]


async def test_reasons_for_unreadable_documents_stay_with_them(
    book: PostgresCollections, index: PostgresCollections, ann: Principal
) -> None:
    collection_id = await create(book, ann, "a.pdf", "b.txt")
    job = await index.try_claim(ENCODER)
    assert job is not None

    await index.finish(job, ENCODER, await index.load_job(job), {"a.pdf": "It is damaged."})

    first, second = await book.load_documents(ann, collection_id)
    assert (first.indexed, first.error, second.indexed, second.error) == (False, "It is damaged.", True, "")


async def test_collections_and_their_documents_are_limited(book: PostgresCollections, ann: Principal) -> None:
    collection_id = await create(book, ann)
    names = [f"{n}.txt" for n in range(MAX_COLLECTION_DOCUMENTS + 1)]
    uploads = [build_upload(collection_id, name, name.encode()) for name in names]

    with pytest.raises(Conflict, match=f"at most {MAX_COLLECTION_DOCUMENTS} documents"):
        await book.add_documents(ann, collection_id, uploads)
    await book.add_documents(ann, collection_id, uploads[1:])
    for _ in range(MAX_COLLECTIONS - 1):
        await create(book, ann)
    with pytest.raises(Conflict, match=f"{MAX_COLLECTIONS} collections"):
        await create(book, ann)
