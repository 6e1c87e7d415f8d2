"""`react.memsearch` over turns in memory, with an encoder that knows words only."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from chat_proc.tools.memory.memsearch import MemsearchTool
from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.memory.embedder import EmbedderUnavailable, Vector
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn.memory.search import CatalogPage, CatalogQuery, FoundSnippet, Scope, SnippetQuery, SnippetTarget
from everturn_testing.memory.search_contract import MemoryDesk, said


class Down:
    """A search and an encoder that can't be reached."""

    name, lexical_only = "down", False

    async def find_snippets(self, principal: Principal, query: SnippetQuery) -> tuple[FoundSnippet, ...]:
        raise Unavailable("no database")

    async def load_catalog(self, principal: Principal, query: CatalogQuery) -> CatalogPage:
        raise Unavailable("no database")

    async def count_unindexed(self, principal: Principal, scope: Scope) -> int:
        raise Unavailable("no database")

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        raise EmbedderUnavailable("no encoder")


@pytest.fixture
def tool(desk: MemoryDesk) -> MemsearchTool:
    return MemsearchTool(desk.search, HashedEmbedder())


async def remember(desk: MemoryDesk, *texts: str, conversation_id: Any = None, target=SnippetTarget.USER):
    vectors = await HashedEmbedder().embed(texts)
    pairs = [(said(text, target=target), vector) for text, vector in zip(texts, vectors, strict=True)]
    return await desk.remember(*pairs, encoder=HashedEmbedder.name, conversation_id=conversation_id)


def read(outcome) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The head and the hits of a result."""
    head, *lines = outcome.text.splitlines()
    return json.loads(head), [json.loads(line) for line in lines]


async def test_a_topic_finds_texts_about_it(desk, tool, call) -> None:
    job = await remember(desk, "The zephyr database holds the regions.", "Lunch is at noon.")

    head, hits = read(await call(tool, {"query": "zephyr database", "top_k": 1}, job.conversation_id))

    assert (head["mode"], head["hits"]) == ("semantic", 1)
    assert hits[0]["text"] == "The zephyr database holds the regions."
    assert set(hits[0]) == {"turn_id", "ref", "role", "text", "score", "ts", "turn_index_path"}


async def test_a_lexical_encoder_adds_a_warning(desk, tool, call) -> None:
    job = await remember(desk, "zephyr")

    head, _ = read(await call(tool, {"query": "zephyr"}, job.conversation_id))

    assert head["ranking"] == "lexical"


async def test_turns_that_a_query_cannot_find_yet_are_counted(desk, tool, call) -> None:
    job = await remember(desk, "zephyr")
    await desk.end_turn(job.conversation_id)
    current = await desk.end_turn(job.conversation_id)

    head, _ = read(await call(tool, {"query": "zephyr"}, job.conversation_id, current.turn_id))

    assert head["warnings"] == [
        'Turns not indexed yet: 1. A query can\'t find them; list the newest turns with {"order": "desc"} and no query.'
    ]


async def test_the_current_turn_is_not_found(desk, tool, call) -> None:
    job = await remember(desk, "zephyr")

    by_topic = await call(tool, {"query": "zephyr"}, job.conversation_id, job.turn_id)
    overview = await call(tool, {}, job.conversation_id, job.turn_id)

    assert by_topic.status == overview.status == "ok"
    assert "Nothing was found" in by_topic.text and "Nothing was found" in overview.text


async def test_of_each_conversation_at_most_two_hits_come_when_all_are_searched(desk, tool, call) -> None:
    job = await remember(desk, *(f"zephyr number {n}" for n in range(6)))
    other = await remember(desk, "zephyr elsewhere")

    _, hits = read(await call(tool, {"query": "zephyr", "scope": "user", "top_k": 10}, job.conversation_id))

    assert [hit["turn_id"] for hit in hits].count(job.turn_id) == 2
    assert [hit["ref"].split(":")[1].split(".")[0] for hit in hits if hit["turn_id"] == other.turn_id] == [
        other.conversation_id
    ]


async def test_another_conversation_is_not_searched_unless_asked_for(desk, tool, call) -> None:
    job = await remember(desk, "kiwi")
    await remember(desk, "zephyr")

    _, hits = read(await call(tool, {"query": "zephyr"}, job.conversation_id))

    assert [hit["text"] for hit in hits] == ["kiwi"]


async def test_targets_narrow_a_search(desk, tool, call) -> None:
    job = await remember(desk, "zephyr said")
    await remember(desk, "zephyr noted", target=SnippetTarget.NOTES, conversation_id=job.conversation_id)

    _, hits = read(await call(tool, {"query": "zephyr", "targets": ["notes"]}, job.conversation_id))

    assert [(hit["role"], hit["text"]) for hit in hits] == [("notes", "zephyr noted")]


async def test_nothing_given_lists_the_turns_in_their_order(desk, tool, call) -> None:
    first = await desk.end_turn()
    conversation_id = first.lease.conversation_id
    await desk.end_turn(conversation_id)

    head, _ = read_head(await call(tool, {}, conversation_id))

    assert head == {"mode": "timeline", "hits": 0, "turns": 2, "total_turns": 2}


def read_head(outcome) -> tuple[dict[str, Any], str]:
    head, _, rest = outcome.text.partition("\n")
    return json.loads(head), rest


async def test_a_turn_is_found_by_its_number_from_either_end(desk, tool, call) -> None:
    conversation_id = (await desk.end_turn()).lease.conversation_id
    await desk.end_turn(conversation_id)
    await desk.end_turn(conversation_id)

    async def count(**params: object) -> int:
        head, _ = read_head(await call(tool, params, conversation_id))
        return head["turns"]

    assert [await count(ordinal=1), await count(ordinal=3, order="desc"), await count(ordinal=4)] == [1, 1, 0]


async def test_a_query_in_a_catalog_mode_is_not_silently_dropped(desk, tool, call) -> None:
    head, _ = read_head(await call(tool, {"mode": "timeline", "query": "zephyr"}))

    assert head["warnings"] == ["query is not used in mode timeline; leave mode out to search by it."]


async def test_without_the_encoder_words_are_compared(desk, call) -> None:
    job = await remember(desk, "zephyr", "kiwi")
    tool = MemsearchTool(desk.search, Down())

    head, hits = read(await call(tool, {"query": "zephyr"}, job.conversation_id))

    assert [hit["text"] for hit in hits] == ["zephyr"]
    assert head["ranking"] == "lexical"
    assert "no encoder" in head["warnings"][0]


@pytest.mark.parametrize("params", [{"query": "x"}, {}])
async def test_a_failed_search_is_reported_to_the_model(call, params) -> None:
    outcome = await call(MemsearchTool(Down(), HashedEmbedder()), params)

    assert outcome.status == "error"
    assert "no database" in outcome.text


async def test_a_mode_without_its_parameters_is_an_error(tool, call) -> None:
    outcome = await call(tool, {"mode": "semantic"})

    assert outcome.status == "error"
    assert "leave out both" in outcome.text


async def test_the_record_of_a_search_names_turns_and_refs(desk, tool, call) -> None:
    job = await remember(desk, "zephyr")

    outcome = await call(tool, {"query": "zephyr"}, job.conversation_id)

    assert outcome.data["turn_ids"] == [job.turn_id]
    assert outcome.data["refs"] == [read(outcome)[1][0]["ref"]]
