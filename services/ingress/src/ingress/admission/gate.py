"""Whether there is room for more work: asked before anything is stored."""

from everturn.errors import Unavailable
from everturn.ports.doorbells import Doorbells
from ingress.errors import unavailable

TURNS_PER_SECOND = 20
"""A cautious guess at how fast the queue shrinks, for Retry-After only."""
MAX_RETRY_AFTER_S = 60


class WorkGate:
    """Backpressure from the doorbells' real depth."""

    def __init__(self, doorbells: Doorbells, *, queue_max: int) -> None:
        self._doorbells = doorbells
        self._queue_max = queue_max

    async def admit(self, *, new_work: bool) -> None:
        """Raises a 503 problem when Redis does not answer within 250 ms, or, for new work, when the queue is full."""
        try:
            depth = await self._doorbells.depth()
        except Unavailable as error:
            raise unavailable("The queue does not answer.") from error
        if new_work and depth >= self._queue_max:
            excess = depth - self._queue_max
            wait_s = min(MAX_RETRY_AFTER_S, 2 + excess // TURNS_PER_SECOND)
            raise unavailable(f"{depth} turns are waiting already.", retry_after_s=wait_s)
