"""A bounded queue for work that takes processes, connections or threads, shared fairly between those it is done for."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from everturn.core.errors import Unavailable


class NoRoom(Unavailable):
    """Too much of this work is already waiting."""


class WorkSlots:
    """Runs `at_once` jobs, lets `waiting` jobs wait, for at most `longest_wait_s`, and rejects all others with `why`.

    A job has an owner, such as a person or a tenant. Owners take turns: each free slot goes to the next owner, not to
    the next job. One owner uses at most `at_once_of_owner` slots, so slow jobs of one never hold all of them. When the
    queue is full, an owner with at least two more waiting jobs than the new job's owner loses the last of them.
    """

    def __init__(
        self,
        at_once: int,
        waiting: int,
        why: str,
        *,
        at_once_of_owner: int | None = None,
        longest_wait_s: float | None = None,
    ) -> None:
        self._free = at_once
        self._longest_wait_s = longest_wait_s
        self._most_waiting = waiting
        self._most_working = at_once if at_once_of_owner is None else at_once_of_owner
        self._working: Counter[str] = Counter()
        # Invariant: while a slot is free, every owner who waits already uses `_most_working` slots.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._why = why

    @asynccontextmanager
    async def acquire(self, owner: str = "") -> AsyncGenerator[None]:
        """Hold a slot while the block runs. Raises NoRoom when too many jobs wait, or no slot is free in time."""
        if self._free > 0 and self._working[owner] < self._most_working:
            self._begin(owner)
        else:
            await self._wait(owner)
        try:
            yield
        finally:
            self._release(owner)

    async def _wait(self, owner: str) -> None:
        self._make_room(owner)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            async with asyncio.timeout(self._longest_wait_s):
                await self._wait_for(owner, turn)
        except TimeoutError as error:
            raise NoRoom(self._why) from error

    async def _wait_for(self, owner: str, turn: asyncio.Future[None]) -> None:
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(owner, turn)
            elif turn.exception() is None:
                # The slot was assigned at the moment of the cancellation.
                self._release(owner)
            raise

    def _make_room(self, owner: str) -> None:
        if sum(map(len, self._waiting.values())) < self._most_waiting:
            return
        busiest = max(self._waiting, key=lambda each: len(self._waiting[each]), default=owner)
        if len(self._waiting.get(busiest, ())) < len(self._waiting.get(owner, ())) + 2:
            raise NoRoom(self._why)
        last = self._waiting[busiest][-1]
        self._leave(busiest, last)
        if not last.done():
            last.set_exception(NoRoom(self._why))

    def _begin(self, owner: str) -> None:
        self._free -= 1
        self._working[owner] += 1

    def _release(self, owner: str) -> None:
        self._free += 1
        self._working[owner] -= 1
        if not self._working[owner]:
            del self._working[owner]
        while self._free > 0 and (following := self._find_next()) is not None:
            turns = self._waiting.pop(following)
            turn = turns.popleft()
            if turns:
                # Requeue the owner after all others who wait.
                self._waiting[following] = turns
            if not turn.done():
                self._begin(following)
                turn.set_result(None)

    def _find_next(self) -> str | None:
        """The owner who has waited longest for a turn and can use one more slot."""
        return next((owner for owner in self._waiting if self._working[owner] < self._most_working), None)

    def _leave(self, owner: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(owner, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(owner, None)
