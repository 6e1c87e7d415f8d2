"""What is due goes batch by batch; what fails holds up nothing."""

from collections.abc import Mapping, Sequence

from chat_proc.worker.retention import BATCH, ROW_BATCH, RetentionJob
from everturn.errors import Unavailable
from everturn.model.artifacts import object_key
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.ports.life.retention import Expired
from everturn.testing.files.artifacts import MemoryArtifacts
from everturn.testing.files.objects import MemoryObjects
from everturn.testing.fixed_clock import FixedClock
from everturn.testing.sequential_ids import SequentialIds
from everturn.testing.turns.platform import MemoryPlatform

ANN = Principal("acme", "support", "ann")
IDS = SequentialIds()


class Due:
    """Conversations that are due, and rows that are."""

    def __init__(self, conversations: Sequence[ConversationId], rows: int = 0) -> None:
        self.left = list(conversations)
        self.rows = rows
        self.asked: list[tuple[int, int]] = []
        self.away = False

    async def erase_expired(self, *, days: int, limit: int) -> tuple[Expired, ...]:
        if self.away:
            raise Unavailable()
        self.asked.append((days, limit))
        batch, self.left = self.left[:limit], self.left[limit:]
        return tuple(Expired(conversation, ANN, (), 3) for conversation in batch)

    async def remove_expired_rows(self, *, days: int, limit: int) -> Mapping[str, int]:
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


async def test_one_that_can_not_be_cleared_holds_up_no_other() -> None:
    due = Due([IDS.conversation(), IDS.conversation()])
    job, streams, _ = make(due)
    streams.away = True

    await job.sweep()

    assert due.left == []
