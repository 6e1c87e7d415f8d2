"""The search service with an unavailable encoder, and with the hits of a fake finder."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta

import pytest

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.memory.embedder import EmbedderUnavailable, Vector
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn.memory.search import FoundSnippet, SnippetQuery, SnippetTarget
from everturn_testing.core import BEGINNING, FixedClock
from ingress.search import SearchIn, SearchService

ANN = Principal("acme", "support", "ann")


class Lost(HashedEmbedder):
    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        raise EmbedderUnavailable("gone")


class Meaning(HashedEmbedder):
    lexical_only = False


class Late(Meaning):
    """Answers only once `loaded` is set."""

    def __init__(self) -> None:
        self.loaded = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        await self.loaded.wait()
        return await super().embed(texts)


class Finder:
    def __init__(self, hits: int = 0) -> None:
        self.queries: list[SnippetQuery] = []
        self._hits = hits

    async def find_snippets(self, principal: Principal, query: SnippetQuery) -> tuple[FoundSnippet, ...]:
        self.queries.append(query)
        return tuple(
            FoundSnippet(ConversationId("c"), TurnId("t"), SnippetTarget.USER, f"ar:{n}", "x", BEGINNING, 1 / (n + 1))
            for n in range(self._hits)
        )


class Titles:
    """A conversation's title is its id; `gone` are erased."""

    def __init__(self, *gone: str) -> None:
        self._gone = gone

    async def load_titles(
        self, principal: Principal, conversation_ids: Collection[ConversationId]
    ) -> dict[ConversationId, str]:
        return {each: f"About {each}" for each in conversation_ids if each not in self._gone}

    async def load(self, principal: Principal, conversation_id: ConversationId) -> None:
        raise AssertionError("nobody queries for a conversation")


def build(
    finder: Finder, embedder: HashedEmbedder, clock: FixedClock | None = None, titles: Titles | None = None
) -> SearchService:
    return SearchService(
        finder=finder,
        conversations=titles or Titles(),  # type: ignore[arg-type]
        embedder=embedder,
        clock=clock or FixedClock(),
        embed_timeout_s=0.05,
    )


async def test_without_its_encoder_a_search_compares_words_and_says_so() -> None:
    finder = Finder()

    answer = await build(finder, Lost()).search(ANN, SearchIn(query="x"))

    assert answer.mode == "lexical"
    assert finder.queries[0].vector is None


async def test_an_encoder_that_is_still_loading_does_not_hold_up_a_search() -> None:
    embedder, finder = Late(), Finder()
    service = build(finder, embedder)

    early = await service.search(ANN, SearchIn(query="x"))
    embedder.loaded.set()
    later = await service.search(ANN, SearchIn(query="x"))

    assert (early.mode, later.mode) == ("lexical", "hybrid")
    assert finder.queries[0].vector is None
    assert finder.queries[1].vector is not None


async def test_later_pages_compare_what_the_first_page_compared() -> None:
    embedder, finder = Late(), Finder(hits=3)
    service = build(finder, embedder)
    by_words = await service.search(ANN, SearchIn(query="x", limit=2))

    embedder.loaded.set()
    second = await service.search(ANN, SearchIn(query="x", limit=2, cursor=by_words.next_cursor))
    by_meaning = await service.search(ANN, SearchIn(query="x", limit=2))
    embedder.loaded.clear()

    assert second.mode == "lexical"
    with pytest.raises(EmbedderUnavailable):
        await service.search(ANN, SearchIn(query="x", limit=2, cursor=by_meaning.next_cursor))


async def test_a_search_with_meanings_is_reported_as_hybrid() -> None:
    finder = Finder()

    answer = await build(finder, Meaning()).search(ANN, SearchIn(query="x"))

    assert answer.mode == "hybrid"
    assert finder.queries[0].vector is not None


async def test_a_lexical_search_does_not_use_the_encoder() -> None:
    finder = Finder()

    answer = await build(finder, Meaning()).search(ANN, SearchIn(query="x", mode="lexical"))

    assert answer.mode == "lexical"
    assert finder.queries[0].vector is None


async def test_hits_have_titles_and_erased_conversations_are_left_out() -> None:
    there = await build(Finder(hits=1), HashedEmbedder()).search(ANN, SearchIn(query="x"))
    gone = await build(Finder(hits=1), HashedEmbedder(), titles=Titles("c")).search(ANN, SearchIn(query="x"))

    assert [hit.title for hit in there.items] == ["About c"]
    assert gone.items == ()


async def test_the_second_page_ranks_as_of_the_first() -> None:
    finder, clock = Finder(hits=3), FixedClock()
    service = build(finder, HashedEmbedder(), clock)

    first = await service.search(ANN, SearchIn(query="x", limit=2))
    clock.advance(60)
    second = await service.search(ANN, SearchIn(query="x", limit=2, cursor=first.next_cursor))

    assert [hit.ref for hit in (*first.items, *second.items)] == ["ar:0", "ar:1", "ar:2"]
    assert second.next_cursor is None
    assert finder.queries[0].now == finder.queries[1].now
    assert finder.queries[0].until - finder.queries[0].now == timedelta(0)
