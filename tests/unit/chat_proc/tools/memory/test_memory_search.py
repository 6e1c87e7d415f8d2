"""`memory.search` over memories in memory."""

import asyncio
import json

import pytest

from chat_proc.tools.memory.user_memories import MemorySearchTool, MemoryWriteTool
from everturn.core.errors import Unavailable
from everturn.memory.embedder import EmbedderUnavailable
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn_testing.memory.user_memories import MemoryUserMemories


class Broken(HashedEmbedder):
    async def embed(self, texts):
        raise EmbedderUnavailable("down")


@pytest.fixture
async def memories(call) -> MemoryUserMemories:
    kept = MemoryUserMemories()
    write = MemoryWriteTool(kept, HashedEmbedder())
    await call(write, {"text": "Prefers metric units.", "labels": ["Preference"]})
    await call(write, {"text": "Works at Acme as an analyst.", "labels": ["fact"], "pinned": True})
    return kept


def read(outcome) -> list[str]:
    return [json.loads(line)["text"] for line in outcome.text.splitlines()]


async def test_a_question_finds_memories_with_common_words(memories, call) -> None:
    found = read(await call(MemorySearchTool(memories, HashedEmbedder()), {"query": "which units", "limit": 1}))

    assert found == ["Prefers metric units."]


async def test_without_a_question_what_matters_most_comes_first(memories, call) -> None:
    found = read(await call(MemorySearchTool(memories, HashedEmbedder()), {}))

    assert found == ["Works at Acme as an analyst.", "Prefers metric units."]


async def test_labels_narrow_the_search(memories, call) -> None:
    found = read(await call(MemorySearchTool(memories, HashedEmbedder()), {"labels": ["PREFERENCE"]}))

    assert found == ["Prefers metric units."]


async def test_without_the_encoder_words_are_compared(memories, call) -> None:
    tool = MemorySearchTool(memories, Broken())

    assert read(await call(tool, {"query": "Acme"})) == ["Works at Acme as an analyst."]
    assert "among 2 memories" in (await call(tool, {"query": "zebra"})).text


async def test_a_failure_is_reported_to_the_model(memories, call) -> None:
    async def refuse(*_: object) -> None:
        raise Unavailable("down")

    memories.load_candidates = refuse

    assert (await call(MemorySearchTool(memories, HashedEmbedder()), {})).status == "error"


async def test_memories_are_ranked_beside_the_event_loop(memories, call) -> None:
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)

    await call(MemorySearchTool(memories, HashedEmbedder()), {"query": "which units"})

    assert turned.is_set()
