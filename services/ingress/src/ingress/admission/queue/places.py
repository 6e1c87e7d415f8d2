"""How deep the queue is for a tenant on a lane: what was counted a moment ago, and what this process let in since.

What others let in since is added by the waiting room.
"""

import asyncio
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from everturn.errors import Unavailable
from everturn.model.identity import Lane
from everturn.model.limits.token_bucket import SECOND_US
from everturn.ports.limits.queue import Queue, QueueDepth
from everturn.waiting import answered_within

KEEP_S = 0.25
"""How old a counted depth may be."""
COUNT_LIMIT_S = 1.0
MAX_COUNTED = 1_000


@dataclass(frozen=True, slots=True)
class QueueView:
    """A depth, and how long ago its count began."""

    depth: QueueDepth
    age_us: int


QueueKey = tuple[str, Lane]
"""A tenant and a lane."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """A depth, and the moment before its count began: what was stored earlier is in it."""

    began_at: float
    depth: QueueDepth


_NEVER = _Counted(-math.inf, QueueDepth(0, 0, 0))


class Places:
    """Owns the counts, and who was let in since. `enter` is followed by one of `leave` and `settle`."""

    def __init__(self, queue: Queue, *, monotonic: Callable[[], float]) -> None:
        self._queue = queue
        self._monotonic = monotonic
        self._counted: OrderedDict[QueueKey, _Counted] = OrderedDict()
        self._counting = asyncio.Lock()
        self._entered: Counter[QueueKey] = Counter()
        self._settled: deque[tuple[float, QueueKey]] = deque()

    async def load(self, key: QueueKey) -> QueueView:
        """Of many requests at once one counts for all. Raises Unavailable after at most a second."""
        try:
            async with answered_within(COUNT_LIMIT_S), self._counting:
                if self._monotonic() - self._counted.get(key, _NEVER).began_at > KEEP_S:
                    began_at = self._monotonic()
                    self._keep(key, _Counted(began_at, await self._queue.load_depth(*key)))
        except TimeoutError as error:
            raise Unavailable("The queue could not be counted in time.") from error
        age_s = self._monotonic() - self._counted.get(key, _NEVER).began_at
        return QueueView(self._with_own(key), int(age_s * SECOND_US))

    def enter(self, key: QueueKey) -> None:
        """One more is let in, and will be stored or not: the next one must not find its place free."""
        self._entered[key] += 1

    def leave(self, key: QueueKey) -> None:
        """It was not stored."""
        self._entered[key] -= 1
        if not self._entered[key]:
            del self._entered[key]

    def settle(self, key: QueueKey) -> None:
        """It is stored: counts that begin from now on have it."""
        self.leave(key)
        now = self._monotonic()
        while self._settled and self._settled[0][0] < now - KEEP_S - COUNT_LIMIT_S:
            self._settled.popleft()
        self._settled.append((now, key))

    def _with_own(self, key: QueueKey) -> QueueDepth:
        counted = self._counted.get(key, _NEVER)
        waiting, of_tenant = self._entered.total(), self._entered[key]
        for settled_at, settled in reversed(self._settled):
            if settled_at < counted.began_at:
                break
            waiting, of_tenant = waiting + 1, of_tenant + (settled == key)
        depth = counted.depth
        return QueueDepth(depth.waiting + waiting, depth.of_tenant + of_tenant, max(depth.tenants, int(of_tenant > 0)))

    def _keep(self, key: QueueKey, counted: _Counted) -> None:
        self._counted[key] = counted
        self._counted.move_to_end(key)
        if len(self._counted) > MAX_COUNTED:
            self._counted.popitem(last=False)
