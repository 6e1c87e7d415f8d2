"""The contract of KnowledgeStore as tests. A subclass or its module defines the fixtures `store`, `bundle_id`, which is
new for each test, and `advance`, which moves the store's clock."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from everturn.knowledge.store import (
    FORGOTTEN_S,
    KEPT_S,
    LEASE_S,
    PASSAGES_OF_DOCUMENT,
    RETRY_S,
    Document,
    IndexedDocument,
    KnowledgeQuery,
    KnowledgeStore,
    Passage,
    SpaceState,
    SpaceVersion,
    WantedSpace,
)
from everturn.memory.embedder import Vector
from everturn.memory.search import QueryVector
from everturn_testing.memory.search_contract import ENCODER, point

Advance = Callable[[float], Awaitable[None]]


def document(path: str, *texts: str, vectors: Sequence[Vector] = (), heading: str = "") -> IndexedDocument:
    """A document in which each of `texts` is a line and a passage."""
    passages: list[tuple[Passage, Vector]] = []
    start = 0
    for line, text in enumerate(texts, start=1):
        vector = vectors[line - 1] if vectors else point(0.0, 1.0)
        passages.append((Passage(heading, line, line, start, len(text)), vector))
        start += len(text) + 1
    whole = "\n".join(texts)
    return IndexedDocument(Document(path, path.rpartition("/")[2], whole, f"digest of {whole}"), passages)


async def build(store: KnowledgeStore, version: SpaceVersion, *documents: IndexedDocument) -> None:
    await store.want(version)
    assert await store.try_lease(version, "builder")
    assert await store.save_documents(version, "builder", documents)
    assert await store.finish(version, "builder")


class KnowledgeStoreContract:
    """Required of every KnowledgeStore."""

    @pytest.fixture
    def version(self, bundle_id: str) -> SpaceVersion:
        return SpaceVersion(bundle_id, "", "s1", ENCODER, untrusted=False)

    @pytest.fixture
    def space(self, bundle_id: str) -> WantedSpace:
        return WantedSpace(bundle_id, "", "s1")

    async def test_a_document_comes_back_as_it_was(
        self, store: KnowledgeStore, version: SpaceVersion, space: WantedSpace
    ) -> None:
        saved = document("docs/a.md", "Caf\u00e9 \U0001f600", "second line")
        await build(store, version, saved, document("docs/b.md", "other"))

        assert await store.try_load([space], "docs/a.md") == saved.document
        assert await store.try_load([space], "docs/none.md") is None
        assert await store.load_paths([space]) == ("docs/a.md", "docs/b.md")

    async def test_nothing_serves_before_the_first_version_is_whole(
        self, store: KnowledgeStore, version: SpaceVersion, space: WantedSpace
    ) -> None:
        assert await store.load_status([space]) == ()
        assert await store.want(version) is SpaceState.BUILDING
        await store.try_lease(version, "builder")
        await store.save_documents(version, "builder", [document("a.md", "zebra")])

        assert await store.search([space], KnowledgeQuery("zebra")) == ()
        assert await store.try_load([space], "a.md") is None
        (status,) = await store.load_status([space])
        assert (status.state, status.serves, status.documents) == (SpaceState.BUILDING, False, 1)

    async def test_the_old_version_serves_until_the_new_one_is_whole(
        self, store: KnowledgeStore, version: SpaceVersion, space: WantedSpace
    ) -> None:
        new, wanted = replace(version, signature="s2"), replace(space, signature="s2")
        await build(store, version, document("a.md", "old"))
        await store.want(new)
        await store.try_lease(new, "builder")
        await store.save_documents(new, "builder", [document("a.md", "new")])

        before = await store.try_load([wanted], "a.md")
        await store.finish(new, "builder")
        after = await store.try_load([wanted], "a.md")

        assert before is not None
        assert after is not None
        assert (before.text, after.text) == ("old", "new")

    async def test_workers_with_different_files_each_read_their_own(
        self, store: KnowledgeStore, version: SpaceVersion, space: WantedSpace
    ) -> None:
        await build(store, version, document("a.md", "one"))
        await build(store, replace(version, signature="s2"), document("a.md", "two"))

        found = [
            await store.try_load([replace(space, signature=signature)], "a.md") for signature in ("s1", "s2", None)
        ]

        assert [each and each.text for each in found] == ["one", "two", "two"]

    async def test_one_builder_works_at_a_time(
        self, store: KnowledgeStore, version: SpaceVersion, advance: Advance
    ) -> None:
        await store.want(version)
        assert await store.try_lease(version, "first")
        assert not await store.try_lease(version, "second")
        await advance(LEASE_S + 1)

        assert await store.try_lease(version, "second")
        assert not await store.save_documents(version, "first", [document("a.md", "late")])
        assert not await store.finish(version, "first")
        assert await store.load_saved(version) == {}

    async def test_the_next_builder_continues_where_the_last_one_died(
        self, store: KnowledgeStore, version: SpaceVersion, space: WantedSpace, advance: Advance
    ) -> None:
        one, two = document("a.md", "one"), document("b.md", "two")
        await store.want(version)
        await store.try_lease(version, "first")
        await store.save_documents(version, "first", [one])
        await advance(LEASE_S + 1)

        assert await store.try_lease(version, "second")
        assert await store.load_saved(version) == {"a.md": one.document.digest}
        await store.save_documents(version, "second", [one, two])
        await store.finish(version, "second")

        assert await store.load_paths([space]) == ("a.md", "b.md")
        assert len(await store.search([space], KnowledgeQuery("one"))) == 1
        assert not await store.try_lease(version, "third")

    async def test_a_failed_version_says_why_and_is_tried_again_later(
        self, store: KnowledgeStore, version: SpaceVersion, space: WantedSpace, advance: Advance
    ) -> None:
        await store.want(version)
        await store.try_lease(version, "builder")
        await store.finish(version, "builder", error="The repository has no branch main.")

        (status,) = await store.load_status([space])
        assert (status.state, status.error) == (SpaceState.FAILED, "The repository has no branch main.")
        assert not await store.try_lease(version, "builder")
        await advance(RETRY_S + 1)
        assert await store.try_lease(version, "builder")

    async def test_unchanged_documents_are_copied_from_the_version_that_serves(
        self, store: KnowledgeStore, version: SpaceVersion, space: WantedSpace
    ) -> None:
        same, changed = document("same.md", "zebra", "lion"), document("changed.md", "tiger")
        await build(store, version, same, changed)
        new = replace(version, signature="s2")
        await store.want(new)
        await store.try_lease(new, "builder")
        wanted = {"same.md": same.document.digest, "changed.md": "another", "added.md": "new"}

        assert await store.copy_documents(new, "stranger", wanted) == 0
        assert await store.copy_documents(new, "builder", wanted) == 1
        assert await store.copy_documents(new, "builder", wanted) == 0
        assert await store.load_saved(new) == {"same.md": same.document.digest}
        await store.finish(new, "builder")

        (found,) = await store.search([replace(space, signature="s2")], KnowledgeQuery("lion"))
        assert (found.path, found.start_line, found.text) == ("same.md", 2, "lion")

    async def test_vectors_of_another_encoder_are_neither_copied_nor_compared(
        self, store: KnowledgeStore, version: SpaceVersion, space: WantedSpace
    ) -> None:
        saved = document("a.md", "zebra")
        await build(store, version, saved)
        other = replace(version, signature="s2", encoder="another")
        await store.want(other)
        await store.try_lease(other, "builder")

        assert await store.copy_documents(other, "builder", {"a.md": saved.document.digest}) == 0
        assert await store.search([space], KnowledgeQuery("", QueryVector("another", point(1.0)))) == ()

    async def test_passages_are_found_by_words_headings_and_meaning(
        self, store: KnowledgeStore, version: SpaceVersion, space: WantedSpace
    ) -> None:
        await build(
            store,
            version,
            document("docs/backups.md", "Copies are made at night.", heading="Backups > Schedule"),
            document("docs/install.md", "Run the installer.", "Then start it.", vectors=[point(0.0, 1.0), point(1.0)]),
        )

        async def ask(text: str, vector: Vector | None = None) -> list[str]:
            asked = KnowledgeQuery(text, None if vector is None else QueryVector(ENCODER, vector))
            return [f"{found.path}:{found.start_line}" for found in await store.search([space], asked)]

        assert await ask("installer") == ["docs/install.md:1"]
        assert await ask("schedule") == ["docs/backups.md:1"]
        assert (await ask("backups night"))[0] == "docs/backups.md:1"
        assert (await ask("", point(1.0)))[0] == "docs/install.md:2"
        assert await ask("giraffe") == []

    async def test_one_document_does_not_hide_the_others(
        self, store: KnowledgeStore, version: SpaceVersion, space: WantedSpace
    ) -> None:
        long = document("long.md", *["zebra zebra"] * 10)
        await build(store, version, long, document("short.md", "one zebra among other words"))

        found = await store.search([space], KnowledgeQuery("zebra", limit=20))

        assert [each.path for each in found].count("long.md") == PASSAGES_OF_DOCUMENT
        assert "short.md" in [each.path for each in found]

    async def test_only_the_named_spaces_of_the_bundle_are_read(
        self, store: KnowledgeStore, version: SpaceVersion, space: WantedSpace
    ) -> None:
        await build(store, replace(version, name="one", untrusted=True), document("one/a.md", "zebra"))
        await build(store, replace(version, name="two"), document("two/a.md", "zebra"))
        one, two = replace(space, name="one"), replace(space, name="two")
        stranger = replace(one, bundle_id=f"{one.bundle_id}-other")

        assert [each.path for each in await store.search([one], KnowledgeQuery("zebra"))] == ["one/a.md"]
        assert len(await store.search([one, two], KnowledgeQuery("zebra"))) == 2
        assert await store.search([stranger], KnowledgeQuery("zebra")) == ()
        assert await store.try_load([stranger], "one/a.md") is None
        assert await store.load_paths([two]) == ("two/a.md",)
        loaded = [await store.try_load([each], f"{each.name}/a.md") for each in (one, two)]
        assert [each and each.untrusted for each in loaded] == [True, False]

    async def test_versions_that_nobody_wants_are_deleted(
        self, store: KnowledgeStore, version: SpaceVersion, space: WantedSpace, advance: Advance
    ) -> None:
        async def delete_all() -> None:
            while await store.delete_unwanted():
                """There may be more."""

        new = replace(version, signature="s2")
        await build(store, version, document("a.md", "old"))
        await advance(KEPT_S + 1)
        await delete_all()
        assert await store.load_saved(version) != {}, "no newer version serves"
        await build(store, new, document("a.md", "new"))
        await delete_all()

        kept = await store.try_load([space], "a.md")
        assert kept is not None
        assert kept.text == "new"
        assert await store.want(version) is SpaceState.BUILDING
        await advance(FORGOTTEN_S + 1)
        await delete_all()
        assert await store.load_status([space]) == ()
