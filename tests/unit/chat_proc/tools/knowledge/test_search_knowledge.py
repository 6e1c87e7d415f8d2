"""An agent searches its documents, reads them by `ks:` refs, and cites them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from chat_proc.channels.citations import cite_text, find_used_sids, index_sources
from chat_proc.knowledge.passages import split_document
from chat_proc.knowledge.reader import KnowledgeReader
from chat_proc.tools.context.fetch_ctx import FetchCtxTool
from chat_proc.tools.context.read import ReadTool
from chat_proc.tools.context.resolve import ReadPorts
from chat_proc.tools.knowledge.search_knowledge import SearchKnowledgeTool
from everturn.knowledge.store import Document, IndexedDocument, SpaceVersion, WantedSpace
from everturn.memory.embedder import EmbedderUnavailable, Vector
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn_testing.core import FixedClock
from everturn_testing.knowledge.store import MemoryKnowledgeStore
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import TimelineBuilder

ARCHITECTURE = """# Architecture

The zephyr database holds the regions of the service, and nothing else that matters to us here.

## Backups

Backups run at night.
"""
VERSION = SpaceVersion("desk", "", "s1", HashedEmbedder.name, untrusted=False)
TIMELINE = TimelineBuilder()
TIMELINE.start_turn("turn_1", "Hello")


class DownEmbedder:
    name, lexical_only = HashedEmbedder.name, True

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        raise EmbedderUnavailable("No encoder.")


@pytest.fixture
def store() -> MemoryKnowledgeStore:
    return MemoryKnowledgeStore(FixedClock())


@pytest.fixture
def reader(store: MemoryKnowledgeStore) -> KnowledgeReader:
    return KnowledgeReader(store, HashedEmbedder(), wanted=lambda: [WantedSpace("desk", "")])


@pytest.fixture
def tool(reader: KnowledgeReader) -> SearchKnowledgeTool:
    return SearchKnowledgeTool(reader)


@pytest.fixture
def ports(reader, tool_ports) -> ReadPorts:
    return ReadPorts(tool_ports.artifacts, tool_ports.reader, tool_ports.sources, knowledge=reader)


async def fill(store: MemoryKnowledgeStore, *, version: SpaceVersion = VERSION, **texts: str) -> None:
    documents: list[IndexedDocument] = []
    for name, text in texts.items():
        title, passages = split_document(f"{name}.md", text)
        cut = [text[each.start_char : each.start_char + each.chars] for each in passages]
        vectors = await HashedEmbedder().embed(cut)
        document = Document(f"docs/{name}.md", title, text, text)
        documents.append(IndexedDocument(document, list(zip(passages, vectors, strict=True))))
    await store.want(version)
    await store.try_lease(version, "builder")
    await store.save_documents(version, "builder", documents)
    await store.finish(version, "builder")


async def test_a_search_names_document_heading_and_lines(call_tool, store, tool) -> None:
    await fill(store, architecture=ARCHITECTURE, other="Something else.")
    pool = MemorySourcePool()

    outcome = await call_tool(tool, TIMELINE, {"query": "zephyr database", "limit": 1}, pool=pool)

    assert outcome.text.startswith(
        "[[S:1]] Architecture, under Architecture\nks:docs/architecture.md#L1-L3\n# Architecture\n\nThe zephyr"
    )
    assert outcome.data == {"refs": ["ks:docs/architecture.md#L1-L3"]}
    assert not outcome.untrusted


async def test_what_is_found_can_be_cited(call_tool, store, tool) -> None:
    await fill(store, architecture=ARCHITECTURE)
    pool = MemorySourcePool()

    await call_tool(tool, TIMELINE, {"query": "zephyr backups"}, pool=pool)

    (row,) = pool.rows
    sources = index_sources(pool.rows)
    assert (row.url, row.source_type, row.is_evidence) == ("ks:docs/architecture.md", "file", True)
    assert cite_text(sources, "It holds regions [[S:1]].") == "It holds regions (Architecture)."
    assert find_used_sids(sources, "It holds regions [[S:1]].") == (1,)


async def test_text_of_a_repository_counts_as_untrusted(call_tool, store, tool, tool_ports, ports) -> None:
    await fill(store, version=replace(VERSION, untrusted=True), architecture=ARCHITECTURE)
    read = ReadTool(tool_ports.objects, tool_ports.attachments, ports)
    fetch = FetchCtxTool(tool_ports.objects, tool_ports.attachments, ports)

    outcomes = [
        await call_tool(tool, TIMELINE, {"query": "zephyr"}),
        await call_tool(read, TIMELINE, {"paths": ["ks:docs/architecture.md"]}),
        await call_tool(fetch, TIMELINE, {"ref": "ks:docs/architecture.md"}),
    ]

    assert [each.untrusted for each in outcomes] == [True, True, True]


async def test_a_search_while_the_encoder_is_away_compares_words(call_tool, store) -> None:
    await fill(store, architecture=ARCHITECTURE)
    tool = SearchKnowledgeTool(KnowledgeReader(store, DownEmbedder(), wanted=lambda: [WantedSpace("desk", "")]))

    outcome = await call_tool(tool, TIMELINE, {"query": "zephyr"})

    assert outcome.status == "ok"
    assert outcome.text.endswith("Only words were compared, not meanings: No encoder.")


async def test_before_the_first_version_is_whole_a_search_says_so(call_tool, store, tool) -> None:
    await store.want(VERSION)

    outcome = await call_tool(tool, TIMELINE, {"query": "zephyr"})

    assert (outcome.status, outcome.text) == (
        "error",
        "Nothing was searched: The knowledge of this agent is being built (0 documents so far). Try again in a minute.",
    )


async def test_documents_are_read_whole_and_by_lines(call_tool, store, tool_ports, ports) -> None:
    await fill(store, architecture=ARCHITECTURE)
    read = ReadTool(tool_ports.objects, tool_ports.attachments, ports)

    whole = await call_tool(read, TIMELINE, {"paths": ["ks:docs/architecture.md"]})
    lines = await call_tool(read, TIMELINE, {"paths": ["ks:docs/architecture.md#L5-L7"]})
    items = await call_tool(
        read, TIMELINE, {"items": [{"path": "ks:docs/architecture.md", "line_start": 7, "line_count": 1}]}
    )

    assert whole.text.endswith(ARCHITECTURE)
    assert lines.text.endswith("lines [5-7]/7 ---\n5: ## Backups\n6: \n7: Backups run at night.")
    assert items.text.endswith("lines [7-7]/7 ---\n7: Backups run at night.")


async def test_programs_read_documents_and_their_lines(call_tool, store, tool_ports, ports) -> None:
    await fill(store, architecture=ARCHITECTURE)
    fetch = FetchCtxTool(tool_ports.objects, tool_ports.attachments, ports)

    whole = await call_tool(fetch, TIMELINE, {"ref": "ks:docs/architecture.md"})
    lines = await call_tool(fetch, TIMELINE, {"ref": "ks:docs/architecture.md#L5-L7"})

    assert whole.value["text"] == ARCHITECTURE
    assert lines.value == {
        "ref": "ks:docs/architecture.md#L5-L7",
        "text": "## Backups\n\nBackups run at night.",
        "chars": 33,
        "next_offset": None,
    }


async def test_a_missing_document_names_similar_ones(call_tool, store, tool_ports, ports, read_tool) -> None:
    await fill(store, architecture=ARCHITECTURE)
    read = ReadTool(tool_ports.objects, tool_ports.attachments, ports)

    missing = await call_tool(read, TIMELINE, {"paths": ["ks:architecture.md"]})
    elsewhere = await call_tool(read_tool, TIMELINE, {"paths": ["ks:docs/architecture.md"]})

    assert missing.status == elsewhere.status == "error"
    assert "Similar documents: ks:docs/architecture.md." in missing.text
    assert elsewhere.text == "ks:docs/architecture.md: missing (this agent has no knowledge documents)"
