"""What is due goes batch by batch; what fails holds up nothing."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from prometheus_client import REGISTRY

from chat_proc.worker.retention import BATCH, MAX_LEFT, ROW_BATCH, SMALL_ROW_BATCH, RetentionJob
from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.files.model import object_key
from everturn.lifecycle.erasure import Expired
from everturn_testing.core import FixedClock, SequentialIds
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.in_memory_platform import MemoryPlatform

ANN = Principal("acme", "support", "ann")
IDS = SequentialIds()


class Due:
    """Conversations that are due, and rows that are."""

    def __init__(self, conversations: Sequence[ConversationId], rows: int = 0) -> None:
        self.left = list(conversations)
        self.rows = rows
        self.asked: list[tuple[int, int]] = []
        self.away = False
        self.stuck: set[ConversationId] = set()
        self.touched: set[ConversationId] = set()
        self.row_limit = ROW_BATCH

    async def load_due(
        self, *, days: int, limit: int, skip: Collection[ConversationId] = ()
    ) -> tuple[ConversationId, ...]:
        if self.away:
            raise Unavailable()
        self.asked.append((days, limit))
        return tuple([each for each in self.left if each not in skip][:limit])

    async def try_erase(self, conversation_id: ConversationId, *, days: int) -> Expired | None:
        if conversation_id in self.stuck:
            raise Unavailable("canceling statement due to statement timeout")
        if conversation_id in self.touched:
            return None
        self.left.remove(conversation_id)
        return Expired(conversation_id, ANN, (), 3)

    async def remove_expired_rows(self, *, days: int, limit: int) -> Mapping[str, int]:
        if limit > self.row_limit:
            raise Unavailable("canceling statement due to statement timeout")
        removed = min(self.rows, limit)
        self.rows -= removed
        return {"idempotency": removed}


class Streams:
    def __init__(self) -> None:
        self.erased: list[ConversationId] = []
        self.away = False

    async def erase(self, conversation_id: ConversationId) -> None:
        if self.away:
            raise Unavailable()
        self.erased.append(conversation_id)


def make(due: Due, *, days: int = 30) -> tuple[RetentionJob, Streams, MemoryObjects]:
    streams, objects = Streams(), MemoryObjects()
    artifacts = MemoryArtifacts(MemoryPlatform(FixedClock()))
    return RetentionJob(due, streams, artifacts, objects, days=days), streams, objects


class Endless:
    """A task beside the job."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled = False

    async def run(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled = True


def failures(kind: str) -> float:
    return REGISTRY.get_sample_value("everturn_retention_failed_total", {"kind": kind}) or 0


async def test_all_that_is_due_goes_in_batches_with_events_and_objects() -> None:
    conversations = [IDS.conversation() for _ in range(BATCH + 2)]
    due = Due(conversations, rows=ROW_BATCH + 1)
    job, streams, objects = make(due)
    objects.stored = {object_key(conversation, "a" * 64): b"a" for conversation in conversations}

    await job.sweep()

    assert due.asked == [(30, BATCH)] * 3
    assert streams.erased == conversations
    assert objects.stored == {}
    assert due.rows == 0


async def test_for_ever_erases_no_conversation_but_removes_keys_that_ran_out() -> None:
    due = Due([IDS.conversation()], rows=1)
    job, streams, _ = make(due, days=0)

    await job.sweep()

    assert (due.asked, streams.erased, due.rows) == ([], [], 0)


async def test_a_database_that_is_away_is_asked_again_the_next_time() -> None:
    due = Due([IDS.conversation()])
    job, streams, _ = make(due)
    due.away = True
    await job.sweep()
    due.away = False

    await job.sweep()

    assert len(streams.erased) == 1


async def test_a_slow_or_active_conversation_does_not_delay_the_others() -> None:
    stuck, touched, *others = [IDS.conversation() for _ in range(BATCH + 2)]
    due = Due([stuck, touched, *others], rows=1)
    due.stuck, due.touched = {stuck}, {touched}
    job, streams, _ = make(due)
    before = failures("conversation")

    await job.sweep()

    assert streams.erased == others
    assert due.left == [stuck, touched]
    assert due.rows == 0
    assert failures("conversation") == before + 1


async def test_where_too_many_can_not_be_erased_the_sweep_ends() -> None:
    due = Due([IDS.conversation() for _ in range(MAX_LEFT + BATCH)])
    due.stuck = set(due.left)
    job, _, _ = make(due)

    await job.sweep()

    assert len(due.asked) == MAX_LEFT // BATCH


async def test_a_store_that_is_away_keeps_no_other_store_from_being_cleared() -> None:
    conversations = [IDS.conversation(), IDS.conversation()]
    due = Due(conversations)
    job, streams, objects = make(due)
    objects.stored = {object_key(conversation, "a" * 64): b"a" for conversation in conversations}
    streams.away = True
    before = failures("events")

    await job.sweep()

    assert (due.left, objects.stored) == ([], {})
    assert failures("events") == before + 2


async def test_rows_that_can_not_be_removed_in_time_go_in_smaller_batches() -> None:
    due = Due([], rows=SMALL_ROW_BATCH * 2 + 1)
    due.row_limit = SMALL_ROW_BATCH
    job, _, _ = make(due)

    await job.sweep()

    assert due.rows == 0


async def test_orphans_are_looked_for_beside_the_sweeps_until_the_job_ends() -> None:
    due, orphans = Due([], rows=1), Endless()
    artifacts = MemoryArtifacts(MemoryPlatform(FixedClock()))
    job = RetentionJob(due, Streams(), artifacts, MemoryObjects(), days=0, orphans=orphans)

    running = asyncio.create_task(job.run())
    async with asyncio.timeout(30):
        await orphans.begun.wait()
    running.cancel()
    await asyncio.wait({running})

    assert (due.rows, orphans.cancelled) == (0, True)
