import asyncio
from collections.abc import Sequence

from turn_harness.harness import ANN, Bench
from turn_harness.replies import answer, call

from chat_proc.attachments.reader import AttachmentReader
from chat_proc.memory.hotset import HOTSET_ROWS, Hotset
from chat_proc.memory.indexer import Indexer
from chat_proc.tools.memory.user_memories import MemoryWriteTool
from everturn.core.errors import Unavailable
from everturn.core.failpoints import Failpoints
from everturn.core.identity import Principal
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn.memory.search import EmbeddedSnippet, IndexJob
from everturn.timeline.blocks import AnchorBody
from everturn_testing.memory.snippets import MemorySnippets
from everturn_testing.memory.user_memories import MemoryUserMemories
from everturn_testing.memory.user_memories_contract import remembered


async def test_a_turn_begins_with_the_hottest_memories() -> None:
    memories = MemoryUserMemories()
    for n in range(12):
        await memories.save(ANN, remembered(f"fact {n}", pinned=n == 7, age_days=n), None)

    found = await Hotset(memories).load_hotset(ANN)

    assert [memory.text for memory in found] == ["fact 7", *[f"fact {n}" for n in range(7)]]  # type: ignore[union-attr]
    assert len(found) == HOTSET_ROWS


async def test_a_failure_or_a_wait_ends_no_turn() -> None:
    class Down(MemoryUserMemories):
        async def load_hotset(self, principal, limit):
            raise Unavailable("no database")

    class Slow(MemoryUserMemories):
        async def load_hotset(self, principal, limit):
            await asyncio.Event().wait()

    assert await Hotset(Down()).load_hotset(ANN) == "memories are not available now"
    assert await Hotset(Slow(), timeout_s=0.01).load_hotset(ANN) == "memories are not available now"


class SeenSnippets(MemorySnippets):
    """Signals when this many turns were indexed."""

    def __init__(self, bench: Bench, turns: int) -> None:
        super().__init__(bench.platform)
        self.left = turns
        self.done = asyncio.Event()

    async def save_snippets(
        self, principal: Principal, job: IndexJob, snippets: Sequence[EmbeddedSnippet], *, encoder: str
    ) -> bool:
        saved = await super().save_snippets(principal, job, snippets, encoder=encoder)
        self.left -= 1
        if not self.left:
            self.done.set()
        return saved


async def test_a_note_the_agent_left_for_itself_is_never_promoted_to_user_memory() -> None:
    memories = MemoryUserMemories()
    note = {"path": "files/n.md", "channel": "internal", "content": "[P] Prefers metric units.", "scratchpad": True}
    bench = Bench(
        call("react.write", note),
        answer("Noted.", summary="Units settled"),
        call("memory.write", {"text": "Works at Acme."}),
        answer("Kept."),
        tools=[MemoryWriteTool(memories, HashedEmbedder())],
        hotset=Hotset(memories),
    )
    index = SeenSnippets(bench, turns=2)

    for text in ("I like metres.", "Remember where I work."):
        await bench.say(text)
        await bench.work()
    await run_indexer(index, bench)

    assert bench.texts(AnchorBody) == ["[P] Prefers metric units."]
    assert [memory.text for memory in await memories.load_hotset(ANN, 99)] == ["Works at Acme."]


async def run_indexer(index: SeenSnippets, bench: Bench) -> None:
    """What happens to turns after their end."""
    parts = {"embedder": HashedEmbedder(), "attachments": AttachmentReader(bench.objects)}
    indexer = Indexer(index=index, failpoints=Failpoints(), **parts)
    working = asyncio.create_task(indexer.run())
    async with asyncio.timeout(5):
        await index.done.wait()
        indexer.drain()
        await working
