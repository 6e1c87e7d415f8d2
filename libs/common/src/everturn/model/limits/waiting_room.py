"""When those who found the queue full are to come back: each is told a place of its own, one after another.

A room holds what was told, in microseconds, by caller. Who comes when told is let in, so what was told is true; nobody
else takes the places that are due. The rest is let in while there is room beyond them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from everturn.model.limits.token_bucket import SECOND_US

PLACES_EACH: Final = 128
"""Told times that one caller may hold: all that a registered user may ask for in a minute, so that each of many clients
of one user has a time of its own. An impatient one must not fill the room."""
MAX_PLACES: Final = 10_000
GRACE_US: Final = 10 * SECOND_US
"""How long a place is kept for who doesn't come."""
NEAR_US: Final = 5 * SECOND_US
"""Places due within this time are kept free: turns don't end as evenly as they are told to."""
SLACK_US: Final = SECOND_US // 2
"""So much earlier than told counts as told."""
MAX_WAIT_US: Final = 600 * SECOND_US
OVER_ROOM: Final = 1.25
"""Who comes when told is let in even if the queue is longer than it should be, up to this part of it."""


def most_of(room: int) -> int:
    """How long the queue may get when those come who were told to."""
    return int(room * OVER_ROOM)


@dataclass(frozen=True, slots=True)
class RoomLoad:
    """How many wait in the queue, how many may, and how long it takes until one more can (microseconds)."""

    depth: int
    room: int
    interval_us: int


@dataclass(frozen=True, slots=True)
class Entry:
    """Let in, or told to come in so many seconds."""

    admitted: bool
    wait_s: float = 0.0


Told = Mapping[str, int]
"""Who (`<caller>:<n>`) was told when."""


def enter_room(told: Told, caller: str, load: RoomLoad, now_us: int) -> tuple[Told, Entry]:
    """What is told afterwards, and the answer. Redis does the same in Lua (everturn.redis.waiting_rooms)."""
    kept = {name: at for name, at in told.items() if at > now_us - GRACE_US}
    own = {name: at for n in range(PLACES_EACH) if (at := kept.get(name := f"{caller}:{n}")) is not None}
    first = min(own, key=lambda name: own[name], default=None)
    due = first is not None and own[first] <= now_us + SLACK_US
    near = sum(at <= now_us + NEAR_US for at in kept.values())
    if load.depth + near < load.room or (due and load.depth < most_of(load.room)):
        if first is not None:
            del kept[first]
        return kept, Entry(True)
    if due and first is not None:
        del kept[first], own[first]
    if len(own) >= PLACES_EACH:
        return kept, Entry(False, (max(own.values()) - now_us) / SECOND_US)
    if len(kept) >= MAX_PLACES:
        return kept, Entry(False, MAX_WAIT_US / SECOND_US)
    at = max(
        now_us + max(1, load.depth + 1 - load.room) * load.interval_us, max(kept.values(), default=0) + load.interval_us
    )
    at = min(at, now_us + MAX_WAIT_US)
    free = next(name for n in range(PLACES_EACH) if (name := f"{caller}:{n}") not in own)
    return {**kept, free: at}, Entry(False, (at - now_us) / SECOND_US)
