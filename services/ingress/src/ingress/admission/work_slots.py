"""A few works at once, a few that wait, shared fairly by the people they are for, and a refusal for all beyond."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from everturn.errors import Unavailable


class NoRoom(Unavailable):
    """Too much of this work is already waiting."""


class WorkSlots:
    """`at_once` work, `waiting` wait, and the others are refused with `why`.

    People take turns: each free slot goes to the next person, not to the next work. Nobody works in more than
    `at_once_of_person` slots, so that one person's slow works never hold all of them. Where no place is free, a person
    with at least two more works waiting than the new one has loses the last of them.
    """

    def __init__(
        self,
        at_once: int,
        waiting: int,
        why: str,
        *,
        at_once_of_person: int | None = None,
        longest_wait_s: float | None = None,
    ) -> None:
        self._free = at_once
        self._longest_wait_s = longest_wait_s
        self._most_waiting = waiting
        self._most_working = at_once if at_once_of_person is None else at_once_of_person
        self._working: Counter[str] = Counter()
        # Invariant: while a slot is free, everybody who waits has `_most_working` works.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._why = why

    @asynccontextmanager
    async def take(self, person: str = "") -> AsyncGenerator[None]:
        """A slot for as long as the block runs. Raises NoRoom when too many wait, or none is free in time."""
        if self._free > 0 and self._working[person] < self._most_working:
            self._begin(person)
        else:
            await self._wait(person)
        try:
            yield
        finally:
            self._release(person)

    async def _wait(self, person: str) -> None:
        self._make_room(person)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(person, deque()).append(turn)
        try:
            async with asyncio.timeout(self._longest_wait_s):
                await self._wait_for(person, turn)
        except TimeoutError as error:
            raise NoRoom(self._why) from error

    async def _wait_for(self, person: str, turn: asyncio.Future[None]) -> None:
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(person, turn)
            elif turn.exception() is None:
                # The slot came in the same moment.
                self._release(person)
            raise

    def _make_room(self, person: str) -> None:
        if sum(map(len, self._waiting.values())) < self._most_waiting:
            return
        busiest = max(self._waiting, key=lambda each: len(self._waiting[each]), default=person)
        if len(self._waiting.get(busiest, ())) < len(self._waiting.get(person, ())) + 2:
            raise NoRoom(self._why)
        last = self._waiting[busiest][-1]
        self._leave(busiest, last)
        if not last.done():
            last.set_exception(NoRoom(self._why))

    def _begin(self, person: str) -> None:
        self._free -= 1
        self._working[person] += 1

    def _release(self, person: str) -> None:
        self._free += 1
        self._working[person] -= 1
        if not self._working[person]:
            del self._working[person]
        while self._free > 0 and (following := self._find_next()) is not None:
            turns = self._waiting.pop(following)
            turn = turns.popleft()
            if turns:
                # Behind all others who wait.
                self._waiting[following] = turns
            if not turn.done():
                self._begin(following)
                turn.set_result(None)

    def _find_next(self) -> str | None:
        """Who has waited longest for a turn and may have one more slot."""
        return next((person for person in self._waiting if self._working[person] < self._most_working), None)

    def _leave(self, person: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(person, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(person, None)
