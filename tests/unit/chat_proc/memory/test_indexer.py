"""The indexer over queues in memory: what it takes, what it leaves, and when it gives up."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from chat_proc.attachments.reader import AttachmentReader
from chat_proc.memory.indexer import MAX_CHARS, MAX_TRIES, MAX_TURNS, REST_CHECK_S, Indexer
from everturn.core.errors import Unavailable
from everturn.core.failpoints import Failpoints
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.memory.embedder import EmbedderUnavailable, Vector
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn.memory.search import EmbeddedSnippet, IndexJob
from everturn.timeline.blocks import Block
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.timeline import TimelineBuilder, build_file

ANN = Principal("acme", "main", "ann")


def job(turn_id: str = "turn_1", tries: int = 1) -> IndexJob:
    return IndexJob(ANN, ConversationId("conv_1"), TurnId(turn_id), tries)


class Index:
    """A queue of jobs, and what was saved of them."""

    def __init__(self, *jobs: IndexJob) -> None:
        self.jobs = list(jobs)
        self.saved: dict[str, list[EmbeddedSnippet]] = {}
        self.timeline = TimelineBuilder()
        self.timeline.start_turn("turn_1", "Hello there.")
        self.broken: dict[str, Exception] = {}
        self.down = 0
        self.failure: Exception = Unavailable("no database")
        self.claims = 0
        self.changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def claim_turns(self, limit: int) -> tuple[IndexJob, ...]:
        self.claims += 1
        self.changed.set()
        if self.down:
            self.down -= 1
            raise self.failure
        found, self.jobs = self.jobs[:limit], self.jobs[limit:]
        return tuple(found)

    async def load_texts(self, principal: Principal, conversation_id: str, turn_id: str) -> tuple[Block, ...]:
        if turn_id in self.broken:
            raise self.broken[turn_id]
        return tuple(self.timeline.blocks)

    async def save_snippets(
        self, principal: Principal, job: IndexJob, snippets: Sequence[EmbeddedSnippet], *, encoder: str
    ) -> bool:
        self.saved[job.turn_id] = list(snippets)
        self.changed.set()
        return True


class BrokenEmbedder(HashedEmbedder):
    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        raise EmbedderUnavailable("down")


class SlowEmbedder(HashedEmbedder):
    TAKES_S = 0.02

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        """How many texts each call had."""

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        self.batches.append(len(texts))
        await asyncio.sleep(self.TAKES_S)
        return await super().embed(texts)


class Desk:
    def __init__(self, index: Index, **parts) -> None:
        self.index, self.objects = index, MemoryObjects()
        self.indexer = Indexer(
            **{
                "index": index,
                "embedder": HashedEmbedder(),
                "attachments": AttachmentReader(self.objects),
                "failpoints": Failpoints(),
                "sweep_every_s": 30.0,
                "gather_s": 0.0,
                **parts,
            }
        )

    async def run_until(self, condition: Callable[[], bool]) -> None:
        task = asyncio.create_task(self.indexer.run())
        await self.index.until(condition)
        self.indexer.drain()
        await asyncio.wait_for(task, 5)


async def test_all_waiting_turns_are_indexed_one_after_another() -> None:
    desk = Desk(Index(job("turn_1"), job("turn_2"), job("turn_3")))

    await desk.run_until(lambda: len(desk.index.saved) == 3)

    assert [each.snippet.text for each in desk.index.saved["turn_2"]] == ["Hello there."]
    assert all(each.vector is not None for each in desk.index.saved["turn_1"])


async def test_turns_are_encoded_together_but_not_one_that_failed_before() -> None:
    embedder = SlowEmbedder()
    desk = Desk(Index(job("turn_1"), job("turn_2", tries=2), job("turn_3")), embedder=embedder)

    await desk.run_until(lambda: len(desk.index.saved) == 3)

    assert embedder.batches == [2, 1]


async def test_long_texts_are_encoded_apart() -> None:
    embedder = SlowEmbedder()
    desk = Desk(Index(job("turn_1"), job("turn_2"), job("turn_3")), embedder=embedder)
    desk.index.timeline = TimelineBuilder()
    desk.index.timeline.start_turn("turn_1", "Hello there. " * (MAX_CHARS // 20))

    await desk.run_until(lambda: len(desk.index.saved) == 3)

    assert len(embedder.batches) == 2


async def test_turns_that_can_not_be_encoded_are_left_for_later() -> None:
    index = Index(job("turn_1"), job("turn_2"))
    desk = Desk(index, embedder=BrokenEmbedder())

    await desk.run_until(lambda: index.claims == 2)

    assert index.saved == {}


async def test_a_turn_that_ends_while_others_run_waits_for_them() -> None:
    busy = True
    desk = Desk(Index(), is_busy=lambda: busy)
    task = asyncio.create_task(desk.indexer.run())
    await desk.index.until(lambda: desk.index.claims == 1)
    desk.index.jobs.append(job())
    desk.indexer.ring()
    await asyncio.sleep(2 * REST_CHECK_S)
    assert desk.index.claims == 1

    busy = False
    await desk.index.until(lambda: "turn_1" in desk.index.saved)

    desk.indexer.drain()
    await asyncio.wait_for(task, 5)


async def test_while_turns_run_indexing_takes_a_part_of_the_time_only() -> None:
    desk = Desk(
        Index(*(job(f"turn_{n}", tries=2) for n in range(1, 100))), is_busy=lambda: True, embedder=SlowEmbedder()
    )
    task = asyncio.create_task(desk.indexer.run())
    await asyncio.sleep(SlowEmbedder.TAKES_S * 20)

    # Twenty fit in without a rest, and four with it.
    assert 1 <= len(desk.index.saved) <= 10
    desk.indexer.drain()
    await asyncio.wait_for(task, 5)


async def test_once_no_turn_runs_indexing_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = True

    def clock() -> float:
        """The first turns take a hundred seconds, and then time stops, so that a rest does not end by itself."""
        return 100.0 * min(1, len(desk.index.saved))

    monkeypatch.setattr("chat_proc.memory.indexer.time", SimpleNamespace(monotonic=clock))
    desk = Desk(Index(*(job(f"turn_{n}") for n in range(MAX_TURNS + 1))), is_busy=lambda: busy)
    task = asyncio.create_task(desk.indexer.run())
    await desk.index.until(lambda: len(desk.index.saved) == MAX_TURNS)
    await asyncio.sleep(0)

    busy = False
    await desk.index.until(lambda: len(desk.index.saved) == MAX_TURNS + 1)

    desk.indexer.drain()
    await asyncio.wait_for(task, 5)


async def test_a_turn_that_ends_here_is_indexed_at_once() -> None:
    desk = Desk(Index())
    task = asyncio.create_task(desk.indexer.run())
    await desk.index.until(lambda: desk.index.claims == 1)

    desk.index.jobs.append(job())
    desk.indexer.ring()
    await desk.index.until(lambda: "turn_1" in desk.index.saved)

    desk.indexer.drain()
    await asyncio.wait_for(task, 5)


async def test_a_turn_that_ended_elsewhere_is_found_by_a_sweep() -> None:
    desk = Desk(Index(), sweep_every_s=0.01)

    await desk.run_until(lambda: desk.index.claims > 2)

    assert desk.index.saved == {}


async def test_a_turn_that_can_not_be_read_stops_no_other() -> None:
    index = Index(job("turn_1"), job("turn_2"))
    index.broken["turn_1"] = ValueError("a body that is not of its type")
    desk = Desk(index)

    await desk.run_until(lambda: "turn_2" in index.saved)

    assert "turn_1" not in index.saved


async def test_a_poisonous_turn_is_given_up_after_its_last_try() -> None:
    index = Index(job(tries=MAX_TRIES + 1))
    index.broken["turn_1"] = ValueError("poison")
    desk = Desk(index)

    await desk.run_until(lambda: "turn_1" in index.saved)

    assert index.saved["turn_1"] == []


async def test_while_the_encoder_is_out_of_reach_turns_wait() -> None:
    index = Index(job(tries=MAX_TRIES - 1))
    desk = Desk(index, embedder=BrokenEmbedder())

    await desk.run_until(lambda: index.claims == 2)

    assert index.saved == {}


async def test_the_last_attempt_indexes_without_vectors() -> None:
    index = Index(job(tries=MAX_TRIES))
    desk = Desk(index, embedder=BrokenEmbedder())

    await desk.run_until(lambda: "turn_1" in index.saved)

    assert [(each.snippet.text, each.vector) for each in index.saved["turn_1"]] == [("Hello there.", None)]


@pytest.mark.parametrize("failure", [Unavailable("no database"), RuntimeError("no such function")])
async def test_a_queue_that_can_not_be_read_is_asked_again_later(failure: Exception) -> None:
    index = Index(job())
    index.down, index.failure = 1, failure
    desk = Desk(index)
    task = asyncio.create_task(desk.indexer.run())
    await index.until(lambda: index.claims == 1)
    desk.indexer.ring()
    await index.until(lambda: "turn_1" in index.saved)

    desk.indexer.drain()
    await asyncio.wait_for(task, 5)


@pytest.mark.parametrize("stored", [True, False])
async def test_texts_of_attached_files_are_indexed_if_they_still_exist(stored: bool) -> None:
    file = build_file("turn_1", "sales.csv", b"region;total\nnorth;5\n", mime="text/csv")
    index = Index(job())
    index.timeline = TimelineBuilder()
    index.timeline.start_turn("turn_1", "Look.", file)
    desk = Desk(index)
    if stored:
        await desk.objects.save(file.object_key, b"region;total\nnorth;5\n")

    await desk.run_until(lambda: "turn_1" in index.saved)

    texts = [each.snippet.text for each in index.saved["turn_1"]]
    assert texts[:2] == ["Look.", "sales.csv (text/csv)"]
    assert texts[2:] == (["region;total\nnorth;5"] if stored else [])


async def test_a_drain_takes_no_more_turns() -> None:
    desk = Desk(Index(job("turn_1"), job("turn_2")))
    desk.indexer.drain()

    await asyncio.wait_for(desk.indexer.run(), 5)

    assert desk.index.claims == 0
