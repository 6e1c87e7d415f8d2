"""Waiting rooms in memory."""

import time
from collections import defaultdict
from collections.abc import Callable

from everturn.errors import Unavailable
from everturn.model.limits.token_bucket import SECOND_US
from everturn.model.limits.waiting_room import Entry, RoomLoad, Told, enter_room


class MemoryWaitingRooms:
    """Implements WaitingRooms. While `down` every call raises Unavailable."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.down = False
        self._monotonic = monotonic
        self._rooms: defaultdict[str, Told] = defaultdict(dict)

    async def enter(self, room: str, caller: str, load: RoomLoad) -> Entry:
        if self.down:
            raise Unavailable("The waiting rooms are down.")
        self._rooms[room], entry = enter_room(self._rooms[room], caller, load, int(self._monotonic() * SECOND_US))
        return entry
