"""Waiting rooms in memory."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from everturn.core.errors import Unavailable
from everturn.limits.token_buckets import SECOND_US
from everturn.limits.waiting_rooms import STORING_US, Entry, RoomLoad, Told, Visitor, enter_room, keep_pass


@dataclass
class _Room:
    """The shared state of a room; `entered` has the time and process of each admission."""

    told: Told = field(default_factory=Told)
    entered: list[tuple[int, object]] = field(default_factory=list[tuple[int, object]])

    def count_others(self, process: object, since_us: int) -> int:
        return sum(at >= since_us and who is not process for at, who in self.entered)


class MemoryWaitingRooms:
    """Implements WaitingRooms. While `down` every call raises Unavailable, while `forgetful` those that keep a pass.

    `beside` is another process with the same rooms.
    """

    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, beside: "MemoryWaitingRooms | None" = None
    ) -> None:
        self.down = False
        self.forgetful = False
        self._monotonic = monotonic
        self._rooms: defaultdict[str, _Room] = beside._rooms if beside else defaultdict(_Room)

    async def enter(self, room: str, visitor: Visitor, load: RoomLoad) -> Entry:
        now_us, one = self._now_us(), self._rooms[room]
        if load.age_us is not None:
            others = one.count_others(self, now_us - load.age_us - STORING_US)
            load = replace(load, depth=load.depth + others)
        one.told, entry = enter_room(one.told, visitor, load, now_us)
        if entry.admitted and load.age_us is not None:
            one.entered.append((now_us, self))
        return entry

    async def keep(self, room: str, visitor: Visitor, wait_s: float) -> None:
        if self.forgetful:
            raise Unavailable("The waiting rooms keep no pass.")
        one = self._rooms[room]
        one.told = keep_pass(one.told, visitor, int(wait_s * SECOND_US), self._now_us())

    def _now_us(self) -> int:
        if self.down:
            raise Unavailable("The waiting rooms are down.")
        return int(self._monotonic() * SECOND_US)
