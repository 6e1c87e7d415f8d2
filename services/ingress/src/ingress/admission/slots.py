"""Slots limit how many long responses, such as event streams and downloads, are open at once, and how many jobs run in
threads: per process, per user, and for all guests."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import cast

from fastapi import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from everturn.core.identity import Principal
from ingress.admission.limits import GUEST_PART, is_guest
from ingress.errors import NoRoom, too_many, unavailable

RETRY_AFTER_S = 5


class OpenSlots:
    """Counts open responses; only this object changes the counts. `what` and `many` name one and several of them in
    errors."""

    def __init__(self, *, max_total: int, max_per_user: int, what: str = "stream", many: str = "event streams") -> None:
        self._what = what
        self._many = many
        self._max_total = max_total
        self._max_per_user = max_per_user
        self._max_guests = max(1, max_total // GUEST_PART)
        self._open: Counter[str] = Counter()
        self._guests = 0

    @property
    def total(self) -> int:
        return self._open.total()

    def acquire(self, principal: Principal) -> None:
        """Acquire a slot, which `release` returns. Raises a 429 problem for the user's cap, 503 for the process's."""
        person = principal.limited_as
        if self._open[person] >= self._max_per_user:
            raise too_many(f"You already have {self._max_per_user} open {self._many}.", retry_after_s=RETRY_AFTER_S)
        if self.total >= self._max_total or (is_guest(principal) and self._guests >= self._max_guests):
            raise unavailable(f"This server can't accept another {self._what} right now.", retry_after_s=RETRY_AFTER_S)
        self._open[person] += 1
        self._guests += is_guest(principal)

    def release(self, principal: Principal) -> None:
        """Return a slot."""
        person = principal.limited_as
        self._open[person] -= 1
        self._guests -= is_guest(principal)
        if self._open[person] <= 0:
            del self._open[person]

    @contextmanager
    def holding(self, principal: Principal) -> Generator[None]:
        """Hold a slot for as long as the block runs."""
        with self.until_handed_over(principal):
            yield
        self.release(principal)

    @contextmanager
    def until_handed_over(self, principal: Principal) -> Generator[None]:
        """Acquire a slot. It is returned here only if the block fails; otherwise its new owner returns it."""
        self.acquire(principal)
        try:
            yield
        except BaseException:
            self.release(principal)
            raise


class HeldResponse(StreamingResponse):
    """A streamed response of any duration that releases its slot however it ends."""

    def __init__(
        self,
        content: AsyncIterable[bytes],
        *,
        slots: OpenSlots,
        principal: Principal,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
    ) -> None:
        super().__init__(content, status_code=status_code, headers=headers, media_type=media_type)
        self._slots = slots
        self._principal = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._slots.release(self._principal)


def download_slots(request: Request) -> OpenSlots:
    """The application's slots for downloads of files and exports."""
    return cast(OpenSlots, request.app.state.downloads)


class WorkSlots:
    """Limits concurrent jobs and waiting jobs, shares the slots fairly between people, and rejects all others.

    Runs `at_once` jobs, lets `waiting` jobs wait, and rejects all others with `why`.

    People take turns: each free slot goes to the next person, not to the next job. One person uses at most
    `at_once_of_person` slots, so slow jobs of one person never hold all of them. When the queue is full, a person with
    at least two more waiting jobs than the new job's person loses the last of them.
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
        # Invariant: while a slot is free, every person who waits already uses `_most_working` slots.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._why = why

    @asynccontextmanager
    async def acquire(self, person: str = "") -> AsyncGenerator[None]:
        """Hold a slot while the block runs. Raises NoRoom when too many jobs wait, or no slot is free in time."""
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
                # The slot was assigned at the moment of the cancellation.
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
                # Requeue the person after all others who wait.
                self._waiting[following] = turns
            if not turn.done():
                self._begin(following)
                turn.set_result(None)

    def _find_next(self) -> str | None:
        """The person who has waited longest for a turn and can use one more slot."""
        return next((person for person in self._waiting if self._working[person] < self._most_working), None)

    def _leave(self, person: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(person, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(person, None)
