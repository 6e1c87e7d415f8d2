"""The worker's trimmer goes on when Redis is away."""

from prometheus_client import REGISTRY

from chat_proc.worker.trimming import StreamTrimmer
from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.events.cursor import EventCursor
from everturn.events.stream import RedisUse


class Memory:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.down = False
        self.trims = 0

    async def check(self) -> None: ...

    async def note_ended(self, conversation_id: ConversationId, owner: Principal, last: EventCursor) -> None: ...

    async def trim_ended(self) -> int:
        if self.down:
            raise Unavailable("away")
        self.trims += 1
        return 2

    async def load_use(self) -> RedisUse:
        return RedisUse(used=30, limit=100)


async def test_trimming_continues_after_an_outage() -> None:
    memory = Memory()
    trimmer = StreamTrimmer(memory)
    memory.down = True
    await trimmer.trim()
    memory.down = False

    await trimmer.trim()

    assert memory.trims == 1
    assert REGISTRY.get_sample_value("everturn_redis_memory_bytes", {"kind": "used"}) == 30
