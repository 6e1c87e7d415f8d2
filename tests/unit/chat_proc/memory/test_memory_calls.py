"""The searches that the documents show, over turns that were indexed, and the way back from a hit to what was said."""

import asyncio
import json
from typing import Any

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.seed_calls import build_bench, make_call, offer_all

from chat_proc.attachments.reader import AttachmentReader
from chat_proc.memory.indexer import Indexer
from chat_proc.tools.memory.memsearch import MemsearchTool
from everturn.core.failpoints import Failpoints
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn.memory.search import IndexJob
from everturn.timeline.blocks import ToolResultBody
from everturn_testing.memory.snippets import MemorySnippets


class Snippets(MemorySnippets):
    """Says when no turn waits to be indexed any more."""

    idle: asyncio.Event

    async def claim_turns(self, limit: int) -> tuple[IndexJob, ...]:
        jobs = await super().claim_turns(limit)
        if not jobs:
            self.idle.set()
        return jobs


async def index_turns(bench: Bench, snippets: Snippets) -> None:
    snippets.idle = asyncio.Event()
    indexer = Indexer(
        index=snippets,
        embedder=HashedEmbedder(),
        attachments=AttachmentReader(bench.objects),
        failpoints=Failpoints(""),
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(indexer.run())
        async with asyncio.timeout(5):
            await snippets.idle.wait()
        indexer.drain()


async def remembering() -> tuple[Bench, list[str]]:
    """Three turns, long ago as far as the prompt is concerned, and their ids."""
    write = call("react.write", {"path": "files/config.yaml", "channel": "internal", "content": "auth: oidc\n"})
    bench = build_bench(
        answer("The schema has three tables.", summary="Goal: database schema. Key facts: three tables."),
        write,
        answer("The authentication configuration is stored.", summary="Goal: authentication configuration from oidc."),
        answer("Sales rose in March.", summary="Goal: sales of March. Outcome: they rose."),
    )
    snippets = Snippets(bench.platform)
    offer_all(bench, [MemsearchTool(snippets, HashedEmbedder())])
    for text in ("What is in the database schema?", "Store the authentication configuration.", "How were sales?"):
        await bench.say(text)
        await bench.work()
    await index_turns(bench, snippets)
    return bench, [turn.id for turn in bench.turn_rows]


def hits(result: ToolResultBody) -> list[dict[str, Any]]:
    assert result.status == "ok", result.text
    return [json.loads(line) for line in result.text.splitlines()[1:]]


@pytest.mark.parametrize(
    ("written", "turn"),
    [
        (
            """react.memsearch(
query="database schema discussed last week",
targets=["assistant", "user"],
top_k=5,
days=30
)""",
            0,
        ),
        (
            """react.memsearch(
query="authentication configuration from last session",
targets=["assistant", "user"],
top_k=5,
days=90
)""",
            1,
        ),
        ('react.memsearch(query, targets=["summary", "user", "assistant", "attachment"])', 2),
        ('react.memsearch(query, targets=["summary", "notes", "user", "assistant", "attachment"])', 2),
    ],
)
async def test_a_topic_leads_to_its_turn(written: str, turn: int) -> None:
    bench, turns = await remembering()

    found = hits(await make_call(bench, written, {"query": "how were the sales in March"}))

    assert found[0]["turn_id"] == turns[turn]
    assert {"turn_id", "text", "score", "ts"} <= set(found[0])
    await check_conversation(bench)


async def test_what_a_search_finds_is_restored_by_its_refs() -> None:
    bench, turns = await remembering()
    written = 'react.memsearch(query="authentication configuration", targets=["assistant", "user"], top_k=5, days=90)'

    found = hits(await make_call(bench, written))
    index = await make_call(bench, "react.read([path])", {"path": found[0]["turn_index_path"]})
    said = await make_call(bench, "react.read([path])", {"path": found[0]["ref"]})
    whole = await make_call(bench, 'react.read(["fi:turn_123.files/config.yaml"])'.replace("turn_123", turns[1]))

    assert [result.status for result in (index, said, whole)] == ["ok", "ok", "ok"]
    assert "auth: oidc" in whole.text


async def test_an_overview_lists_working_summaries_in_the_order_of_turns() -> None:
    bench, turns = await remembering()

    found = hits(
        await make_call(bench, 'react.memsearch(mode="timeline", targets=["summary"], order="asc", top_k=N)', {"N": 3})
    )

    assert [hit["turn_id"] for hit in found] == turns
    assert {hit["role"] for hit in found} == {"summary"}


async def test_an_ordinal_clue_leads_to_that_turn() -> None:
    bench, turns = await remembering()
    written = 'react.memsearch(mode="ordinal", ordinal=2, targets=["summary", "user", "assistant"])'

    found = hits(await make_call(bench, written))

    assert {hit["turn_id"] for hit in found} == {turns[1]}


@pytest.mark.parametrize(
    ("since", "until", "count"), [("2026-03-01", "2026-04-01", 3), ("2026-04-01", "2026-05-01", 0)]
)
async def test_a_temporal_clue_leads_to_the_turns_of_that_time(since: str, until: str, count: int) -> None:
    bench, turns = await remembering()
    written = (
        f'react.memsearch(mode="temporal", from="{since}T00:00:00Z", to="{until}T00:00:00Z", '
        'targets=["summary", "user", "assistant"])'
    )

    result = await make_call(bench, written)

    if count:
        assert {hit["turn_id"] for hit in hits(result)} == set(turns[:count])
    else:
        assert "Nothing was found" in result.text
