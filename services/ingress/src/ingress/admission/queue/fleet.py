"""What the workers that are there can do: how many turns at once, and how long one takes."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from everturn.errors import Unavailable
from everturn.model.limits.token_bucket import SECOND_US
from everturn.ports.runs.presences import Presences, WorkerPresence

KEEP_S = 1.0
"""How old what is known of the workers may be; they tell every 5 s."""
STALE_S = 5.0
"""How long a wire that is slow to answer leaves us with what was known."""
REST_S = 0.5
"""How long a wire that did not answer is not asked again: who comes meanwhile need not wait for its silence."""
GUESSED_TURN_S = 10.0
"""Where no worker has ended a turn yet."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """All live workers together."""

    slots: int
    turn_s: float
    user_running_max: int | None = None
    """Turns of one user that run while others wait; the smallest that a worker reports, None where none does."""

    @property
    def interval_us(self) -> int:
        """Between two turns that leave the queue, while all are busy."""
        return max(1, int(self.turn_s / max(1, self.slots) * SECOND_US))


def build_fleet(workers: tuple[WorkerPresence, ...]) -> Fleet:
    """Sums up the workers; each counts by its slots."""
    slots = sum(worker.slots for worker in workers)
    told = [(worker.slots, worker.turn_s) for worker in workers if worker.turn_s is not None]
    running = [worker.user_running_max for worker in workers if worker.user_running_max is not None]
    weight = sum(weight for weight, _ in told)
    turn_s = sum(weight * turn_s for weight, turn_s in told) / weight if weight else GUESSED_TURN_S
    return Fleet(slots, turn_s, min(running, default=None))


class FleetWatch:
    """Asks for the workers at most once a second, whoever and however many want to know."""

    def __init__(self, presences: Presences, *, monotonic: Callable[[], float]) -> None:
        self._presences = presences
        self._monotonic = monotonic
        self._fleet = Fleet(0, GUESSED_TURN_S)
        self._failure: str | None = None
        self._ask_at = self._known_at = -math.inf
        self._asking = asyncio.Lock()

    async def load(self) -> Fleet:
        """Raises Unavailable after at most 250 ms, where nothing is known; for half a second then without asking."""
        async with self._asking:
            if self._monotonic() >= self._ask_at:
                await self._ask()
        if self._failure is not None:
            raise Unavailable(self._failure)
        return self._fleet

    async def _ask(self) -> None:
        try:
            self._fleet, self._failure = build_fleet(await self._presences.load_all()), None
            self._known_at = self._monotonic()
        except Unavailable as error:
            if self._monotonic() - self._known_at > STALE_S:
                self._failure = str(error)
        self._ask_at = self._monotonic() + (REST_S if self._failure is not None else KEEP_S)
