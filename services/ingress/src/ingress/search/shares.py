"""How much of the encoder one user may have at a time, and all together, so that the questions of one do not hold up
those of all others, and none waits for long.

The local encoder reads one text after another, and a long question takes it a fifth of a second.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from everturn.model.identity import Principal
from ingress.admission.slots import OpenSlots

AT_ONCE = 2
"""Searches of one user that are made at the same time: so many places it has in the encoder's line."""
WAITING = 8
"""Searches of one user that wait for those."""
OPEN = 64
"""Searches of all users that are made or wait; each waits for the encoder `service.EMBED_TIMEOUT_S` at most."""


class _Share:
    """The places of one user, kept while one of them is taken."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(AT_ONCE)
        self.inside = 0


class SearchShares:
    """Gives each user places of its own; only this object changes the counts."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}
        self._open = OpenSlots(max_total=OPEN, max_per_user=AT_ONCE + WAITING, what="search", many="searches")

    @asynccontextmanager
    async def take(self, principal: Principal) -> AsyncGenerator[None]:
        """A place for as long as the block runs. Raises a 429 problem when too many of this user wait already, 503 when
        too many of all do."""
        person = principal.limited_as
        with self._open.holding(principal):
            share = self._shares.setdefault(person, _Share())
            share.inside += 1
            try:
                async with share.free:
                    yield
            finally:
                share.inside -= 1
                if not share.inside:
                    del self._shares[person]
