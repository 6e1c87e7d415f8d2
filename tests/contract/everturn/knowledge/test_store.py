"""Knowledge in memory and in Postgres keep one contract."""

import asyncio
import itertools
from dataclasses import replace
from typing import LiteralString, cast

import pytest

from everturn.core.errors import DatabaseFault
from everturn.knowledge.postgres_store import PostgresKnowledgeStore
from everturn.knowledge.store import KnowledgeQuery, SpaceVersion, WantedSpace
from everturn.memory.search import QueryVector
from everturn_testing.core import FixedClock
from everturn_testing.database_roles import Roles
from everturn_testing.knowledge.store import MemoryKnowledgeStore
from everturn_testing.knowledge.store_contract import Advance, KnowledgeStoreContract, build, document
from everturn_testing.memory.search_contract import ENCODER, point

_numbers = itertools.count(1)
_TIMES = ("wanted_at", "built_at", "lease_until", "retry_at")


@pytest.fixture
def bundle_id() -> str:
    return f"bundle-{next(_numbers)}"


@pytest.fixture
def store(roles: Roles) -> PostgresKnowledgeStore:
    return PostgresKnowledgeStore(roles.worker)


@pytest.fixture
def advance(roles: Roles) -> Advance:
    async def age_rows(seconds: float) -> None:
        older = ", ".join(f"{column} = {column} - make_interval(secs => $1)" for column in _TIMES)
        await roles.superuser.execute(f"UPDATE knowledge_space SET {older}", seconds)

    return age_rows


class TestPostgresKnowledgeStore(KnowledgeStoreContract):
    pass


class TestMemoryKnowledgeStore(KnowledgeStoreContract):
    @pytest.fixture
    def clock(self) -> FixedClock:
        return FixedClock()

    @pytest.fixture
    def store(self, clock: FixedClock) -> MemoryKnowledgeStore:
        return MemoryKnowledgeStore(clock)

    @pytest.fixture
    def advance(self, clock: FixedClock) -> Advance:
        async def advance(seconds: float) -> None:
            clock.advance(seconds)

        return advance


async def test_no_service_can_read_the_tables(roles: Roles) -> None:
    for database in (roles.worker, roles.ingress):
        for table in ("knowledge_space", "knowledge_document", "knowledge_passage"):
            with pytest.raises(DatabaseFault, match="permission denied"):
                async with database.connection() as connection:
                    await connection.fetch(cast("LiteralString", f"SELECT * FROM {table}"))


async def test_a_large_space_is_copied_and_deleted_in_parts(
    store: PostgresKnowledgeStore, bundle_id: str, advance: Advance
) -> None:
    old = SpaceVersion(bundle_id, "", "old", ENCODER, untrusted=False)
    new = SpaceVersion(bundle_id, "", "new", ENCODER, untrusted=False)
    documents = [document(f"{n:03}.md", *(f"line {line} of {n}" for line in range(30))) for n in range(150)]
    await build(store, old, *documents)
    await store.want(new)
    await store.try_lease(new, "builder")
    wanted = {each.document.path: each.document.digest for each in documents}

    copied = [await store.copy_documents(new, "builder", wanted) for _ in range(4)]
    await store.finish(new, "builder")
    found = await store.search(
        [WantedSpace(bundle_id, "")], KnowledgeQuery("line 29 of 149", QueryVector(ENCODER, point(1.0)), 20)
    )
    await advance(1000)
    await store.want(new)
    deleted: list[int] = []
    while (count := await store.delete_unwanted()) > 0:
        deleted.append(count)

    assert copied == [67, 67, 16, 0]
    assert sum(deleted) >= 150
    assert len(deleted) > 2
    assert "149.md" in [each.path for each in found]


@pytest.mark.parametrize("is_copied", [False, True])
async def test_a_batch_that_takes_longer_than_the_lease_keeps_it(roles: Roles, bundle_id: str, is_copied: bool) -> None:
    store, added = PostgresKnowledgeStore(roles.worker, lease_s=0.5), document("a.md", "x")
    version = SpaceVersion(bundle_id, "", "one", ENCODER, untrusted=False)
    if is_copied:
        await build(store, replace(version, signature="earlier"), added)
    await store.want(version)
    await store.try_lease(version, "builder")

    async with asyncio.TaskGroup() as tasks:
        async with roles.superuser.transaction():
            await roles.superuser.execute("LOCK TABLE knowledge_document IN SHARE MODE")
            wanted = {added.document.path: added.document.digest}
            copying, saving = store.copy_documents, store.save_documents
            running = copying(version, "builder", wanted) if is_copied else saving(version, "builder", [added])
            saved = tasks.create_task(running)
            await asyncio.wait({saved}, timeout=0.7)
        assert await saved
        assert await store.finish(version, "builder")
