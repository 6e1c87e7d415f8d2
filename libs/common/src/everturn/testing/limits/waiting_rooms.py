"""Waiting rooms in memory."""

import time
from collections import defaultdict
from collections.abc import Callable

from everturn.errors import Unavailable
from everturn.model.limits.token_bucket import SECOND_US
from everturn.model.limits.waiting_room import Entry, RoomLoad, Told, Visitor, enter_room, keep_pass


class MemoryWaitingRooms:
    """Implements WaitingRooms. While `down` every call raises Unavailable, while `forgetful` those that keep a pass."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.down = False
        self.forgetful = False
        self._monotonic = monotonic
        self._rooms: defaultdict[str, Told] = defaultdict(Told)

    async def enter(self, room: str, visitor: Visitor, load: RoomLoad) -> Entry:
        self._rooms[room], entry = enter_room(self._rooms[room], visitor, load, self._now_us())
        return entry

    async def keep(self, room: str, visitor: Visitor, wait_s: float) -> None:
        if self.forgetful:
            raise Unavailable("The waiting rooms keep no pass.")
        self._rooms[room] = keep_pass(self._rooms[room], visitor, int(wait_s * SECOND_US), self._now_us())

    def _now_us(self) -> int:
        if self.down:
            raise Unavailable("The waiting rooms are down.")
        return int(self._monotonic() * SECOND_US)
