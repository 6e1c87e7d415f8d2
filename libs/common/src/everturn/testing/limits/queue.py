"""The queue in memory."""

from everturn.model.identity import Lane
from everturn.model.turns import TurnStatus
from everturn.ports.limits.queue import QueueDepth
from everturn.testing.turns.platform import MemoryPlatform


class MemoryQueue:
    """Implements Queue over the shared rows."""

    def __init__(self, platform: MemoryPlatform) -> None:
        self._platform = platform

    async def load_depth(self, tenant: str, lane: Lane) -> QueueDepth:
        queued = [row for row in self._platform.turns.values() if row.turn.status is TurnStatus.QUEUED]
        own = [row for row in queued if row.principal.tenant == tenant and row.lane is lane]
        return QueueDepth(len(queued), len(own), len({row.principal.tenant for row in queued}))
